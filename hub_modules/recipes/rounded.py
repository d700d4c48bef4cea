"""Write a run or a teacher with 8-bit weights, a quarter of the size, to copy it between machines.

    python hub_modules/recipes/rounded.py work/runs/convert carried/runs/convert
    python hub_modules/recipes/rounded.py all-mpnet-base-v2/ carried/all-mpnet-base-v2

A rounded run can be exported, evaluated and used to start another run (`--init_from`), but it
cannot be resumed. If a run has not finished, its newest checkpoint is written instead, to
`carried/runs/convert.unfinished`.
"""

import os
import shutil
import sys
from pathlib import Path

from convert_tf.checkpoints.facts import training_facts
from convert_tf.checkpoints.folder import load_similarity_map, save_checkpoint
from convert_tf.checkpoints.kinds import Kind, kind_of
from convert_tf.checkpoints.loading import load_model
from convert_tf.checkpoints.rounded import rounded_archive
from convert_tf.extras import needs
from convert_tf.training.state import newest_checkpoint, step_folder
from convert_tf.training.teaching.teacher import ROUNDED_WEIGHTS, package_folder


def save_rounded_run(run: str, output: str) -> str:
    """Write the best weights of a run with 8 bits per weight, and its training facts.

    If the run has not finished, write its newest checkpoint to `{output}.unfinished` instead.

    Returns:
      The folder that was written.
    """
    folder = Path(run)
    if (newest := newest_checkpoint(run)) is not None:
        steps = training_facts(newest)["train"]["steps"]
        if newest.name != step_folder(steps):
            folder, output = newest, f"{output}.unfinished"
    model, vocabulary = load_model(folder)
    save_checkpoint(
        output,
        model,
        vocabulary=vocabulary,
        training=training_facts(folder),
        similarity_map=load_similarity_map(folder),
        is_rounded=True,
    )
    for name in ("metrics.jsonl", "curve.png"):
        if (Path(run) / name).is_file():
            shutil.copyfile(Path(run) / name, Path(output) / name)
    return output


def save_rounded_teacher(name: str, output: str | os.PathLike[str]) -> None:
    """Write a sentence-transformers model with 8-bit matrices, in a format only for `Teacher`.

    Use it to copy a teacher to a machine that cannot download it: all-mpnet-base-v2 takes 105 MB
    instead of 418. Unlike dynamic 8-bit quantization, this rounds only the stored weights. All
    computations use floats. docs/training_from_scratch.md gives the mean cosines between the
    vectors with rounded and with exact weights.

    Args:
      name: folder or Python package of the model, as for `package_folder`.
      output: folder to write.

    Raises:
      ValueError: if `name` contains no model, or if `output` exists.
    """
    folder, target = package_folder(name), Path(output)
    with needs("teach", "A teacher"):
        from transformers import AutoModel

    if target.exists():
        raise ValueError(f"{str(output)!r} already exists. Remove it or choose another folder.")
    partial = target.with_name(f"{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    (partial / "1_Pooling").mkdir(parents=True)
    for file in ("modules.json", "config.json", "tokenizer.json", "1_Pooling/config.json"):
        shutil.copyfile(folder / file, partial / file)
    weights = AutoModel.from_pretrained(folder).state_dict()
    arrays = {name: own.float().numpy() for name, own in weights.items()}
    (partial / ROUNDED_WEIGHTS).write_bytes(rounded_archive(arrays))
    partial.rename(target)


def main(source: str, output: str) -> None:
    if kind_of(source) in (Kind.DUAL_ENCODER, Kind.RANKER) or newest_checkpoint(source):
        output = save_rounded_run(source, output)
    else:
        save_rounded_teacher(source, output)
    print(f"wrote {output}")


if __name__ == "__main__":
    main(*sys.argv[1:])
