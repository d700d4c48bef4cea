#!/bin/sh
# Make the poly-encoder convert_rerank_poly from a released encoder, in 40 minutes on one core:
#
#   hub_modules/recipes/train.sh ids work/ 'RC_*.zst' 'RS_*.zst' 'dialogues/*.jsonl.zst' 'utterances/*.jsonl.zst'
#   hub_modules/recipes/rerank_poly.sh work/ convert_small
#
# Call it from the root of the project. What comes after the encoder goes to the training. Contexts are
# all turns, so it trains on records, which need TensorFlow. Every step keeps what is there: call it again
# after a stop.
set -eu
work=$1 encoder=$2
shift 2
recipes=hub_modules/recipes

[ -d "$work/first" ] ||
    python3 $recipes/first_shard.py "$work/data" "$work/first" deal_or_no_deal,esconv
python3 train.py --flagfile=$recipes/rerank_poly.flags --data "$work/first" \
    --init_from "$encoder" --output "$work/runs/rerank_poly" "$@"
# Training with fewer codes and shorter texts is faster.
[ -d "$work/runs/more_codes" ] ||
    python3 $recipes/more_codes.py "$work/runs/rerank_poly" "$work/runs/more_codes"
[ -d "$work/hub_modules/convert_rerank_poly/1" ] ||
    python3 export.py --network_bits=8 --encoder "$work/runs/more_codes" \
        --notes "$recipes/convert_rerank_poly.md" --output "$work/hub_modules/convert_rerank_poly/1"
