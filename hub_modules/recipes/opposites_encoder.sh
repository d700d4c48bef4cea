#!/bin/sh
# Train a released encoder to tell opposites apart, in two steps. In the first step, the encoder's own vectors of
# single texts and its own ranking of responses keep its other encodings in place. The second step trains ranking
# again, because the first step lowers R100@1:
#
#   RANKER=convert/2 hub_modules/recipes/opposites_encoder.sh work/ contrasts/ 'utterances/*.jsonl.zst' convert_small/2
#
# Run this script from the root of the project. work/data/ is a folder of conversations that `convert-tf
# prepare` wrote, as in train.sh. Only its first shard is read. Arguments after the encoder are passed to
# `convert-tf train` in the first step, and RANKING_FLAGS in the second. If RANKER is set, this encoder, such as
# convert/2, is a second teacher for ranking. If TEACHER is set, for example to a folder of all-MiniLM-L6-v2, this sentence encoder is a
# second teacher for single texts (own_vectors.py). The two steps of convert_small take 45 minutes on one core that
# computes in bfloat16; without bfloat16, they take about five times as long. The result is work/runs/opposites_mean:
# the weights after both steps (0.7) and before (0.3), and the mean of the similarity maps after the first step and
# before. Export the result with `export.py --network_bits=8`. opposites_texts.sh describes the other files in work/.
# Every step keeps existing results, so you can run the script again if it stops. Use another work folder for
# another encoder, RANKER or TEACHER, for other flags, and for another version of this script.
set -eu
work=$1 contrasts=$2 utterances=$3 encoder=$4
shift 4
recipes=hub_modules/recipes
vocab=hub_modules/$encoder/assets/vocab.txt

[ -d "$work/first" ] ||
    python3 $recipes/first_shard.py "$work/data" "$work/first"
[ -d "$work/first_ids" ] || python3 -m convert_tf tokenize \
    --data "$work/first" --vocab "$vocab" --output "$work/first_ids"
$recipes/opposites_texts.sh "$work" "$contrasts" "$utterances" "$vocab" 12000 6000
texts=$work/few_text_ids_12000
[ -d "$work/own_vectors_12000" ] ||
    python3 $recipes/own_vectors.py "hub_modules/$encoder" "$texts" "$work/own_vectors_12000" \
        ${TEACHER:+"$TEACHER"}
ranking=$work/ranking_vectors
[ -d "$ranking" ] || python3 -m convert_tf teach --token_ids "$work/first_ids" --sides \
    --teacher "hub_modules/$encoder${RANKER:+,hub_modules/$RANKER}" --max_examples 50000 --output "$ranking"
python3 -m convert_tf train --flagfile=$recipes/opposites_encoder.flags --data "$work/first_ids" \
    --init_from "hub_modules/$encoder" --utterances "$texts" \
    --utterance_teacher "$work/own_vectors_12000" --triplets "$work/triplet_ids_12000" \
    --ranking_teacher "$ranking" --output "$work/runs/opposites" "$@"

turned=$work/runs/opposites_turned
[ -d "$turned" ] || python3 $recipes/mean.py "$work/runs/opposites" \
    "hub_modules/$encoder" 0 "$turned" "$work/few_texts_12000.jsonl.zst"
[ -d "$work/turned_vectors" ] ||
    python3 $recipes/own_vectors.py "$turned" "$texts" "$work/turned_vectors"
python3 -m convert_tf train --flagfile=$recipes/opposites_ranking.flags --data "$work/first_ids" \
    --init_from "$turned" --utterances "$texts" --utterance_teacher "$work/turned_vectors" \
    --ranking_teacher "$ranking" --output "$work/runs/opposites_ranking" ${RANKING_FLAGS:-}
[ -d "$work/runs/opposites_mean" ] || python3 $recipes/mean.py "$work/runs/opposites_ranking" \
    "hub_modules/$encoder" 0.3 "$work/runs/opposites_mean" "$work/few_texts_12000.jsonl.zst" \
    "$work/runs/opposites"
