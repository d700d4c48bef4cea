#!/bin/sh
# From dumps and dialogues to the released modules; a run that was stopped goes on where it was.
#
#   pip install -e '.[teach]'
#   hub_modules/recipes/train.sh 'dumps/RC_*.zst' 'dumps/RS_*.zst' 'dialogues/*.jsonl.zst' work/
#
# Called from the root of the project. Modules are written to work/hub_modules/.
set -eu
comments=$1 submissions=$2 dialogues=$3 work=$4
recipes=hub_modules/recipes

[ -d "$work/data" ] || python -m convert_tf.data.prepare --input "$comments" \
    --submissions "$submissions" --dialogues "$dialogues" --preset=clean --max_length=300 \
    --output "$work/data"
[ -f "$work/vocab.txt" ] || python -m convert_tf.text.learn --input "$work/data" \
    --output "$work/vocab.txt" --min_count 40
[ -d "$work/ids" ] || python -m convert_tf.data.tokenize --data "$work/data" \
    --vocab "$work/vocab.txt" --output "$work/ids"
[ -d "$work/teacher" ] || python -m convert_tf.data.teach --data "$work/data" \
    --token_ids "$work/ids" --output "$work/teacher"

train() {
    name=$1
    shift
    python train.py --flagfile="$recipes/$name.flags" --data "$work/ids" \
        --teacher "$work/teacher" --output "$work/runs/$name" "$@"
}

train convert_small
train convert_part1 --init_from "$work/runs/convert_small"
train convert --init_from "$work/runs/convert_part1"
train convert_multi_context --init_from "$work/runs/convert_part1"

for name in convert_small convert convert_multi_context; do
    [ -d "$work/hub_modules/$name/1" ] || python export.py --checkpoint "$work/runs/$name" \
        --network_bits=8 --notes "$recipes/$name.md" --output "$work/hub_modules/$name/1"
done
