#!/bin/sh
# Train the poly-encoder convert_rerank_poly from a released encoder, in 40 minutes on one core:
#
#   hub_modules/recipes/train.sh ids work/ 'RC_*.zst' 'RS_*.zst' 'dialogues/*.jsonl.zst' 'utterances/*.jsonl.zst'
#   hub_modules/recipes/rerank_poly.sh work/ convert_small
#
# Run this script from the root of the project. Arguments after the encoder are passed to train.py. A
# context consists of all its turns, so training reads records, not token ids, and needs TensorFlow. Every
# step keeps existing results, so if the script stops, run it again.
set -eu
work=$1 encoder=$2
shift 2
recipes=hub_modules/recipes

[ -d "$work/first" ] ||
    python3 $recipes/first_shard.py "$work/data" "$work/first"
python3 train.py --flagfile=$recipes/rerank_poly.flags --data "$work/first" \
    --init_from "$encoder" --output "$work/runs/rerank_poly" "$@"
# The run used fewer codes and shorter texts, because that is faster. more_codes.py raises both.
[ -d "$work/runs/more_codes" ] ||
    python3 $recipes/more_codes.py "$work/runs/rerank_poly" "$work/runs/more_codes"
[ -d "$work/hub_modules/convert_rerank_poly/1" ] ||
    python3 export.py --network_bits=8 --encoder "$work/runs/more_codes" \
        --notes "$recipes/convert_rerank_poly.md" --output "$work/hub_modules/convert_rerank_poly/1"
