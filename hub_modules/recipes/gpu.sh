#!/bin/sh
# Train the released encoders on a rented GPU machine that has no internet access:
#
#   gpu.sh pack work/ parts/ all-MiniLM-L6-v2/ all-mpnet-base-v2/    here, after `train.sh ids`
#   gpu.sh run parts/ work/ back/ [flags of train.py]                there
#   gpu.sh unpack back/ work/                                        here, before `train.sh modules`
#
# `pack` writes the token ids, the teachers with 8-bit weights, the wheels of Keras, and all runs that were
# unpacked earlier, in files of PART_BYTES. The GPU machine needs a checkout of this project, the Python
# version in RENTED_PYTHON, JAX, PyTorch, transformers and h5py. `run` trains the encoders, or the rankers
# if STEP=rankers is set. It stops after SECONDS_LIMIT seconds, and continues when you run it again. It
# writes the trained runs to back/, with 8-bit weights, in files of 16 MiB. Relative paths in the flags of
# train.py are read from the root of the project. docs/training_from_scratch.md has a timetable.
set -eu
step=$1
recipes=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$recipes/../.." && pwd)
PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH}
export PYTHONPATH

fail() {
    echo "gpu.sh: $1" >&2
    exit 2
}

pack() {
    work=$1 parts=$2
    shift 2
    for name in ids text_ids; do
        [ -d "$work/$name" ] || fail "$work has no $name. Run train.sh ids first."
    done
    mkdir -p "$work/teachers" "$parts"
    : >"$work/teachers/order" # train.sh gives the teachers weights by their position
    for teacher; do
        name=$(basename "$teacher")
        [ -e "$work/teachers/$name" ] ||
            python3 "$recipes/rounded.py" "$teacher" "$work/teachers/$name"
        echo "$name" >>"$work/teachers/order"
    done
    wheels=wheels_${RENTED_PYTHON:-3.12}
    [ -d "$work/$wheels" ] || {
        rm -rf "$work/wheels.partial"
        python3 -m pip download --quiet --no-deps --only-binary=:all: \
            --python-version "${RENTED_PYTHON:-3.12}" --dest "$work/wheels.partial" \
            --platform manylinux2014_x86_64 --platform manylinux_2_28_x86_64 keras namex optree
        mv "$work/wheels.partial" "$work/$wheels"
    }
    rm -f "$parts"/part-*
    runs=
    [ ! -d "$work/runs" ] || runs=runs
    tar -C "$work" --exclude='test-*' -cf - ids text_ids teachers "$wheels" $runs |
        xz -T0 | split -b "${PART_BYTES:-30m}" - "$parts/part-"
    du -sh "$parts"
}

run() {
    parts=$1 work=$2 back=$3
    shift 3
    case $work in /*) ;; *) work=$PWD/$work ;; esac # train.sh runs in another folder
    if [ ! -d "$work/ids" ]; then
        mkdir -p "$work/partial"
        cat "$parts"/part-* | python3 -c 'import sys, tarfile
tarfile.open(fileobj=sys.stdin.buffer, mode="r|xz").extractall(sys.argv[1])' "$work/partial"
        mv "$work"/partial/* "$work"
    fi
    if [ ! -d "$work/site" ]; then
        rm -rf "$work/site.partial"
        mkdir "$work/site.partial"
        for wheel in "$work"/wheels*/*.whl; do
            [ ! -f "$wheel" ] || python3 -m pip install --quiet --no-index --no-deps \
                --target "$work/site.partial" "$wheel"
        done
        mv "$work/site.partial" "$work/site"
    fi
    export PYTHONPATH="$PYTHONPATH:$work/site" KERAS_BACKEND=jax
    export JAX_COMPILATION_CACHE_DIR="$work/compiled"
    TEACHERS=
    [ -f "$work/teachers/order" ] || {
        echo "gpu.sh: $work/teachers/order is missing. Pack again with the teachers, and run with a new work folder." >&2
        exit 1
    }
    while IFS= read -r teacher; do
        TEACHERS=${TEACHERS:+$TEACHERS,}$work/teachers/$teacher
    done <"$work/teachers/order"
    export TEACHERS
    status=0
    (cd "$root" && timeout "${SECONDS_LIMIT:-0}" hub_modules/recipes/train.sh "${STEP:-runs}" "$work" "$@") ||
        status=$?
    rm -rf "$work/back"
    mkdir -p "$work/back/runs"
    for run in "$work"/runs/*/; do
        # Before the first checkpoint, a run has nothing to write.
        [ -f "${run}config.json" ] || ls -d "${run}checkpoints"/step-* >/dev/null 2>&1 || continue
        python3 "$recipes/rounded.py" "$run" "$work/back/runs/$(basename "$run")" || status=1
    done
    mkdir -p "$back"
    tar -C "$work/back" -cf - runs | split -b 16m - "$back/part-"
    [ "$status" = 124 ] || exit "$status" # 124 means that the time limit was reached
}

unpack() {
    mkdir -p "$2"
    cat "$1"/part-* | tar -C "$2" -xf -
}

shift
case $step in
pack | run | unpack) "$step" "$@" ;;
*) fail "the first argument must be pack, run or unpack. Received: $step." ;;
esac
