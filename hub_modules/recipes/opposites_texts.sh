#!/bin/sh
# Write the triplets and single texts that opposites.sh and opposites_encoder.sh train on, and their token ids:
#
#   hub_modules/recipes/opposites_texts.sh work/ contrasts/ 'utterances/*.jsonl.zst' vocab.txt 2500
#
# The last argument is the maximum number of triplets from each source. Run this script from the root of the
# project. Triplets from sources that are not used for training are written to work/held_out.jsonl.zst, for
# `benchmarks/kinds.py --triplets`. Every step keeps existing results.
set -eu
work=$1 contrasts=$2 utterances=$3 vocab=$4 of_source=$5
recipes=hub_modules/recipes
left_out="cad_nli,cad_nli_revised_premise,condaqa,home_assistant,mnli_dev,semantoneg"

mkdir -p "$work"
[ -f "$work/triplets.jsonl.zst" ] || python3 $recipes/triplets.py "$contrasts" "$utterances" \
    "$work/triplets.jsonl.zst" "$of_source" $left_out "$work/held_out.jsonl.zst"
[ -d "$work/triplet_ids" ] || python3 -m convert_tf tokenize \
    --triplets "$work/triplets.jsonl.zst" --vocab "$vocab" --output "$work/triplet_ids"
[ -f "$work/texts.jsonl.zst" ] || python3 $recipes/few_texts.py "$utterances" \
    "$work/triplets.jsonl.zst" "$work/texts.jsonl.zst"
[ -d "$work/text_ids" ] || python3 -m convert_tf tokenize \
    --utterances "$work/texts.jsonl.zst" --vocab "$vocab" --output "$work/text_ids"
