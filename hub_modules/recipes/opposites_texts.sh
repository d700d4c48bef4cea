#!/bin/sh
# Write the triplets and single texts that opposites.sh and opposites_encoder.sh train on, and their token ids:
#
#   hub_modules/recipes/opposites_texts.sh work/ contrasts/ 'utterances/*.jsonl.zst' vocab.txt 2500 1300
#
# The last two arguments are the maximum number of triplets from each source, which all names of files end
# with, and the number of single texts from each of seven files. Run this script from the root of the project.
# Triplets from sources that are not used for training are written to work/held_out_2500.jsonl.zst, for
# `benchmarks/kinds.py --triplets`. Every step keeps existing results.
set -eu
work=$1 contrasts=$2 utterances=$3 vocab=$4 of_source=$5 of_file=$6
recipes=hub_modules/recipes
triplets=$work/triplets_$of_source.jsonl.zst texts=$work/few_texts_$of_source.jsonl.zst
left_out="cad_nli,cad_nli_revised_premise,condaqa,home_assistant,mnli_dev,semantoneg"

mkdir -p "$work"
[ -f "$triplets" ] || python3 $recipes/triplets.py "$contrasts" "$utterances" "$triplets" "$of_source" \
    $left_out "$work/held_out_$of_source.jsonl.zst"
[ -d "$work/triplet_ids_$of_source" ] || python3 -m convert_tf tokenize \
    --triplets "$triplets" --vocab "$vocab" --output "$work/triplet_ids_$of_source"
[ -f "$texts" ] || python3 $recipes/few_texts.py "$utterances" "$triplets" "$texts" "$of_file"
[ -d "$work/few_text_ids_$of_source" ] || python3 -m convert_tf tokenize \
    --utterances "$texts" --vocab "$vocab" --output "$work/few_text_ids_$of_source"
