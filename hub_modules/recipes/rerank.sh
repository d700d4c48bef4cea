#!/bin/sh
# Train the released poly-encoder on a CPU, in an hour on one core:
#
#   hub_modules/recipes/train.sh ids work/ 'RC_*.zst' 'RS_*.zst' 'dialogues/*.jsonl.zst' 'utterances/*.jsonl.zst'
#   hub_modules/recipes/rerank.sh work/
#
# Call it from the root of the project. It reads the records in work/data. What comes after work/ goes to
# convert-tf train. The module is work/hub_modules/convert_rerank_poly/1. Every step keeps what is there: call it
# again after a stop.
set -eu
work=$1
shift
recipes=hub_modules/recipes
python3 -m convert_tf train --flagfile=$recipes/rerank.flags --init_from convert_small --data "$work/data" \
    --output "$work/runs/rerank" "$@"
[ -d "$work/hub_modules/convert_rerank_poly/1" ] || python3 -m convert_tf export --network_bits=8 \
    --encoder "$work/runs/rerank" --notes $recipes/convert_rerank_poly.md \
    --output "$work/hub_modules/convert_rerank_poly/1"
