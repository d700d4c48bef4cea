#!/bin/sh
# Make the poly-encoder convert_rerank_poly from a released encoder, in two hours on one core:
#
#   hub_modules/recipes/train.sh ids work/ 'RC_*.zst' 'RS_*.zst' 'dialogues/*.jsonl.zst' 'utterances/*.jsonl.zst'
#   hub_modules/recipes/rerank_poly.sh work/ convert_small
#
# Call it from the root of the project. What comes after the encoder goes to both trainings. The second
# goes on from the first, with longer texts. Contexts are all turns, so it trains on records, which need
# TensorFlow. Every step keeps what is there: call it again after a stop.
set -eu
work=$1 encoder=$2
shift 2
recipes=hub_modules/recipes

[ -d "$work/first" ] ||
    python3 $recipes/first_shard.py "$work/data" "$work/first" deal_or_no_deal,esconv
python3 train.py --flagfile=$recipes/rerank_poly_short.flags --data "$work/first" \
    --init_from "$encoder" --output "$work/runs/rerank_poly_short" "$@"
python3 train.py --flagfile=$recipes/rerank_poly.flags --data "$work/first" \
    --init_from "$work/runs/rerank_poly_short" --output "$work/runs/rerank_poly" "$@"
[ -d "$work/hub_modules/convert_rerank_poly/1" ] ||
    python3 export.py --network_bits=8 --encoder "$work/runs/rerank_poly" \
        --notes "$recipes/convert_rerank_poly.md" --output "$work/hub_modules/convert_rerank_poly/1"
