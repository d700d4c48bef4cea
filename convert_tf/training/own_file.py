"""Prepare a user's file of pairs or dialogues for training, so that `train` accepts such a file."""

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from convert_tf.config.train import TRAIN_RECIPES
from convert_tf.corpora import dumps
from convert_tf.corpora.data_folder import small_vocabulary, table
from convert_tf.corpora.local import prepare
from convert_tf.corpora.options import CORPORA, PrepareOptions
from convert_tf.corpora.vocabulary import learn
from convert_tf.metrics import BLOCK_SIZE
from convert_tf.storage.checksums import file_checksum
from convert_tf.storage.files import only_writer, write_file
from convert_tf.storage.json_text import json_file

SOURCE_FILE = "source.json"  # in the folder of the run; names the file the data was made from
DEV_EXAMPLES = 200  # number of dev examples to hold out, if the file has enough
MAX_DEV_FRACTION = 0.3
EPOCHS = 10
MIN_STEPS = 300
_INCOMPLETE = {"complete": False}
_ONE_SHARD = {"train": 1, "dev": 1, "test": 1}


@dataclass(frozen=True)
class OwnFile:
    """The training data made from a user's file.

    Args:
      data: folder of the prepared data.
      vocabulary: vocabulary file, or None to use the vocabulary of `init_from`.
      eval_splits: `("dev",)`, or an empty tuple if the dev split has too few examples for ranking.
      num_train: number of examples in the train split.
    """

    data: str
    vocabulary: str | None
    eval_splits: tuple[str, ...]
    num_train: int

    def sizes(self, batch_size: int | None = None) -> dict[str, int]:
        """Return batch size, steps and intervals of the recipe `small` for this number of examples.

        A run has ten epochs, but at least 300 and at most 4,000 steps.

        Args:
          batch_size: number of pairs per batch. Default: 128, or half the examples if that is less.
        """
        recipe = TRAIN_RECIPES["small"]
        batch_size = batch_size or max(2, min(recipe["batch_size"], self.num_train // 2))
        steps = math.ceil(EPOCHS * self.num_train / batch_size)
        steps = min(max(steps, MIN_STEPS), recipe["steps"])
        interval = max(1, min(recipe["eval_every"], steps // 4))
        return {
            "batch_size": batch_size,
            "steps": steps,
            "warmup_steps": min(recipe["warmup_steps"], steps // 5),
            "eval_every": interval,
            "checkpoint_every": interval,
        }


def prepare_own_file(
    path: str, run: str, *, vocabulary: str | None, learns_vocabulary: bool
) -> OwnFile:
    """Prepare a file in the folder of a run. A resumed run reuses the data that it finds there.

    While the data is incomplete, `source.json` says so. After an interruption, the data is prepared
    again.

    Args:
      path: file of pairs or dialogues (`convert_tf.corpora.pairs`), compressed or not.
      run: folder of the run. The data is written to `data/` in it, and the vocabulary to
        `vocab.txt`.
      vocabulary: vocabulary file to use, or None.
      learns_vocabulary: whether to learn a vocabulary if `vocabulary` is None.

    Raises:
      ValueError: if the file contains no pairs, the data of the run was made from another file, or
        another process is preparing that data.
      OSError: if the file cannot be read, or its data cannot be written.
    """
    folder = Path(run)
    data = folder / "data"
    source = {"file": os.path.basename(path), "sha256": file_checksum(path)}
    if not _is_prepared(path, folder, source):
        with only_writer(data):
            if not _is_prepared(path, folder, source):  # another process may just have finished
                incomplete = json.dumps({**source, **_INCOMPLETE}) + "\n"
                write_file(folder / SOURCE_FILE, incomplete)
                _prepare(path, str(data))
                write_file(folder / SOURCE_FILE, json.dumps(source) + "\n")
    report = json_file(data / "report.json")
    numbers = {split: one["examples"] for split, one in report["splits"].items()}
    total = sum(numbers.values())
    print(f"{path}: {total:,} pairs → {data}; dev and test are held out")
    print(table(report))
    if vocabulary is None and learns_vocabulary:
        learnt = folder / "vocab.txt"
        if not learnt.is_file():
            print(learn([str(data)], str(learnt), config=small_vocabulary(2 * total, at_least=2)))
        vocabulary = str(learnt)
    eval_splits = ("dev",) if numbers["dev"] >= BLOCK_SIZE else ()
    if not eval_splits:
        print(
            f"R100@1 needs {BLOCK_SIZE} dev examples, but there are only {numbers['dev']}: there "
            "is no evaluation, and the last weights are kept"
        )
    return OwnFile(str(data), vocabulary, eval_splits, numbers["train"])


def _is_prepared(path: str, run: Path, source: Mapping[str, str]) -> bool:
    """Return whether a run contains the complete data of a file.

    Raises:
      ValueError: if the run contains data that was made from another file.
    """
    report, before = run / "data" / "report.json", run / SOURCE_FILE
    if not report.is_file():
        return False
    facts = json_file(before) if before.is_file() else None  # None: `train` did not write it
    if facts not in (source, {**source, **_INCOMPLETE}):
        raise ValueError(
            f"{str(report.parent)!r} was made from a file other than {path!r}, or that file has "
            "changed since. Choose another --output."
        )
    return facts == source


def _prepare(path: str, data: str) -> None:
    corpus = CORPORA["pairs"]  # it has no length limits, so all of the user's pairs are used
    file = dumps.CountedFile(path)
    turns = pairs = 0
    for conversation in corpus.read(file):
        turns += len(conversation.turns)
        pairs += max(len(conversation.turns) - conversation.first_answer, 0)
    file.check_readable(turns)  # `prepare` would name a flag that `train` does not have
    fraction = _dev_fraction(pairs)
    while True:
        options = PrepareOptions(dev_fraction=fraction, num_shards=_ONE_SHARD)
        corpora = {corpus.name: [path]}
        report = prepare([], data, corpora=corpora, options=options, overwrite=True)
        numbers = [split["examples"] for split in report["splits"].values()]
        if not fraction or report["splits"]["dev"]["examples"] >= BLOCK_SIZE:
            return
        # The dev split is too small for ranking. If rows are repeated, a larger fraction of the
        # remaining examples may be enough. Otherwise, the file is prepared without a dev split.
        larger = _dev_fraction(sum(numbers))
        fraction = larger if larger > fraction else 0.0


def _dev_fraction(pairs: int) -> float:
    """Return the fraction of the pairs to hold out for evaluation; 0 if there are too few pairs."""
    fraction = max(PrepareOptions().dev_fraction, DEV_EXAMPLES / max(pairs, 1))
    return fraction if fraction <= MAX_DEV_FRACTION else 0.0
