"""Write a run or a teacher in 8 bits, a quarter of its size, to carry it between machines.

    python hub_modules/recipes/rounded.py work/runs/convert carried/runs/convert
    python hub_modules/recipes/rounded.py all-mpnet-base-v2/ carried/all-mpnet-base-v2

The folder of a run can be exported, evaluated and trained further (`--init_from`), but not resumed.
Of a run that was stopped, the newest checkpoint is written, to `carried/runs/convert.unfinished`.
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
    """Write the best weights of a run in 8 bits, and what it says of its training.

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
    """Write a model of sentence-transformers with its matrices in 8 bits, for `Teacher` alone.

    For a machine that cannot download it: all-mpnet-base-v2 takes 105 MB instead of 418. Unlike in
    dynamic 8 bits, what it computes stays in floats; mean cosines to the vectors of the exact
    weights are in docs/training_from_scratch.md.

    Args:
      name: as of `package_folder`.
      output: folder to write.

    Raises:
      ValueError: as of `Teacher`, or `output` exists.
    """
    folder, target = package_folder(name), Path(output)
    with needs("teach", "A teacher"):
        from transformers import AutoModel

    if target.exists():
        raise ValueError(f"{str(output)!r} already exists. Choose another folder, or remove it.")
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
