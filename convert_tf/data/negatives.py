"""Hard negatives on disk: for each example, the numbers of examples with wrong responses.

A folder written by `convert-tf mine` contains

- `negatives.json`: the `version` of the format, the `split` (train), its number of `examples`, the
  SHA-256 of the contexts and responses (`texts_sha256`), the maximum number of `negatives` per
  example, and the `dtype` of the array. It also records how the negatives were found: the
  `checkpoint` that ranked the responses, the SHA-256 of its weights, the number of
  `mined_examples`, and the options;
- `train-negatives.npy`, int32 `[examples, negatives]`: for each example, the numbers of the
  examples in the same split whose responses are its negatives, the highest-ranked first. Missing
  negatives are −1.
"""

import os

import numpy as np

from convert_tf.data.packing import TokenIds
from convert_tf.data.schema import PAIR
from convert_tf.data.token_arrays import ArrayExamples
from convert_tf.storage.arrays import FolderFormat

ARRAY_FILE = "train-negatives.npy"
DTYPE = "int32"
FORMAT = FolderFormat(
    what="folder of negatives",
    facts_file="negatives.json",
    other_files=r"train-negatives\.npy",
    kinds={"split": str, "examples": int, "texts_sha256": str, "negatives": int, "checkpoint": str},
    dtypes=(DTYPE,),
    remedy="Write it again with `convert-tf mine`.",
)


def scattered(values: np.ndarray) -> np.ndarray:
    """Hash uint64 values with one step of SplitMix64. All numpy versions give the same result."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


class HardNegatives:
    """Mined negatives for the training examples. Each epoch draws some of them.

    Args:
      folder: folder written by `convert-tf mine`.
      examples: the token ids of the split `train`.
      per_pair: number of negatives to draw per example.
      seed: a non-negative integer that determines the draws.

    Raises:
      ValueError: if the folder is incomplete or damaged, belongs to other token ids, or has fewer
        than `per_pair` negatives per example.

    Example:
      negatives = HardNegatives("negatives/", examples, per_pair=1, seed=0)
      numbers = negatives.draw(np.arange(512), epochs=np.zeros(512, np.int64))  # [512, 1]
    """

    def __init__(
        self, folder: str | os.PathLike[str], examples: ArrayExamples, *, per_pair: int, seed: int
    ) -> None:
        facts = FORMAT.facts(folder)
        mined = facts["split"], facts["examples"], facts["texts_sha256"]
        if mined != ("train", examples.num_examples, examples.checksum(PAIR)):
            raise ValueError(
                f"The negatives in {str(folder)!r} were not mined from these token ids. Mine "
                "negatives from these token ids with `convert-tf mine`, or train on the token ids "
                "that the negatives were mined from."
            )
        if per_pair > facts["negatives"]:
            raise ValueError(
                f"{str(folder)!r} contains only {facts['negatives']} negatives per example, but "
                f"negatives_per_pair is {per_pair}. Lower --negatives_per_pair, or mine more "
                "negatives."
            )
        self.per_pair = per_pair
        self.names = ("negative",) * per_pair
        self.seed = seed
        self._examples = examples
        self._mined = FORMAT.mapped(
            folder, ARRAY_FILE, DTYPE, (examples.num_examples, facts["negatives"])
        )

    def numbers(self, examples: np.ndarray) -> np.ndarray:
        """Return all mined negatives for some examples, the highest-ranked first.

        Args:
          examples: int64 `[examples]`, numbers of examples.

        Returns:
          int64 `[examples, negatives]`, numbers of the examples whose responses are the negatives.
          Missing negatives are −1.

        Raises:
          ValueError: if a stored number is out of range, or the file was truncated.
        """
        mined = np.asarray(self._mined.checked()[examples], np.int64)
        if mined.min(initial=-1) < -1 or mined.max(initial=-1) >= self._examples.num_examples:
            raise ValueError(
                f"{str(self._mined.path)!r} is damaged: its numbers range from {mined.min()} to "
                f"{mined.max()}, but the split has {self._examples.num_examples} examples. "
                f"{FORMAT.remedy}"
            )
        return mined

    def draw(self, examples: np.ndarray, epochs: np.ndarray) -> np.ndarray:
        """Draw negatives for some examples. The draw depends only on seed, epoch and example.

        If an example has fewer mined negatives than `per_pair`, the rest are the responses of
        random other examples.

        Args:
          examples: int64 `[examples]`, numbers of examples.
          epochs: int64 `[examples]`, how often each example was seen before.

        Returns:
          int64 `[examples, per_pair]`, numbers of the examples whose responses are the negatives.
          No mined negative occurs twice for an example.

        Raises:
          ValueError: as for `numbers`.
        """
        mined = self.numbers(examples)
        keys = scattered(np.full(len(examples), self.seed, np.uint64))
        for part in (epochs, examples):
            keys = scattered(keys + part.astype(np.uint64))
        keys = scattered(keys[:, None] + np.arange(mined.shape[1], dtype=np.uint64))
        order = np.where(mined < 0, np.uint64(2**64 - 1), keys >> np.uint64(1))
        chosen = np.argsort(order, axis=1, kind="stable")[:, : self.per_pair]
        drawn = np.take_along_axis(mined, chosen, axis=1)
        # Each offset is at least 1 and less than `number`, so no example is its own negative.
        number = self._examples.num_examples
        steps = np.take_along_axis(keys, chosen, axis=1) % np.uint64(max(number - 1, 1))
        others = (examples[:, None] + 1 + steps.astype(np.int64)) % number
        return np.where(drawn < 0, others, drawn)

    def of_batch(
        self, numbers: np.ndarray, positions: np.ndarray, epochs: np.ndarray
    ) -> tuple[TokenIds, dict[str, np.ndarray]]:
        """Return the drawn negatives for a batch; see `convert_tf.data.schema.Addition`."""
        return self.responses(self.draw(numbers, epochs).T.ravel()), {}

    def responses(self, numbers: np.ndarray) -> TokenIds:
        """Return the token ids of the responses of the examples numbered `numbers`, int64 `[n]`."""
        return self._examples.texts("response", numbers)
