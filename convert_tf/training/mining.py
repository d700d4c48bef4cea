"""Mine hard negatives from token ids, and write them to a folder.

Hard negatives are wrong responses that a trained model ranks high. `convert_tf.data.negatives`
describes the files in the folder.
"""

import itertools
import math
import os
import time
from typing import Any

import numpy as np

from convert_tf.checkpoints import folder as checkpoints
from convert_tf.checkpoints.kinds import Kind, kind_of
from convert_tf.data.batches import EvaluationBatches
from convert_tf.data.mining import BLOCK_SIZE, hard_negatives
from convert_tf.data.negatives import ARRAY_FILE, DTYPE, FORMAT
from convert_tf.data.packing import text_groups
from convert_tf.data.schema import PAIR, Examples, SelectedExamples
from convert_tf.models.encoder import DualEncoder
from convert_tf.numerics.devices import choose_precision
from convert_tf.storage.arrays import GrowingArray
from convert_tf.storage.checksums import file_checksum
from convert_tf.storage.folders import put_aside
from convert_tf.storage.progress import Progress
from convert_tf.training.encoder.data import open_data
from convert_tf.training.encoder.evaluation import encode_batches

BATCH_SIZE = 512  # number of examples encoded together


def mine(
    checkpoint: str,
    data: str,
    output: str,
    *,
    max_examples: int = 0,
    negatives: int = 8,
    skip_top: int = 10,
    margin: float | None = None,
    block_size: int = BLOCK_SIZE,
    precision: str = "auto",
    overwrite: bool = False,
) -> dict[str, Any]:
    """Mine hard negatives for the train split, and write them to a folder.

    The examples are divided into blocks, and the responses in a block are ranked for each of its
    contexts. Only the encodings of one block are in memory at a time. A multi-context model ranks
    by its encoding of context and earlier turns together. The folder appears only when it is
    complete.

    Args:
      checkpoint: model directory of a dual encoder with the same vocabulary as the token ids.
      data: folder of token ids.
      output: folder to write.
      max_examples: number of examples to mine negatives for, starting with the first; 0 for all.
        All later examples get no negatives.
      negatives: maximum number of negatives per example, at least 1.
      skip_top: number of top-ranked wrong responses to skip.
      margin: a response is skipped if its cosine with the context exceeds the cosine of the correct
        response by more than this. If None, no response is skipped because of its cosine.
      block_size: maximum number of examples per block, at least 2. Blocks have about equal sizes.
      precision: precision of the encoder, as in `Training.precision`.
      overwrite: whether to replace the negatives that `output` already contains.

    Returns:
      A dict with the content of `negatives.json` and these entries: `found`, the share of the
      requested negatives that was found; `most_used`, the number of times that the most frequent
      negative is used; and `seconds`, the elapsed time.

    Raises:
      ValueError: if `data` does not contain token ids or was made with another vocabulary, no
        negatives were found, or `output` is not empty.
      OSError: if a file cannot be read or written.
    """
    place = FORMAT.output(output, overwrite=overwrite)
    started = time.monotonic()
    examples = _opened(data, checkpoint)
    encoder, _ = checkpoints.load_checkpoint(checkpoint, dtype=choose_precision(precision))
    number = min(max_examples or examples.num_examples, examples.num_examples)
    blocks = math.ceil(number / block_size)
    print(f"{number:,} contexts, each against about {number // blocks:,} responses")
    bounds = np.linspace(0, number, blocks + 1).astype(np.int64)
    uses = np.zeros(number, np.int64)
    options = {"negatives": negatives, "skip_top": skip_top, "margin": margin}
    with place.open() as written:
        with (
            Progress("examples encoded or searched", total=2 * number) as progress,
            GrowingArray(written / ARRAY_FILE, DTYPE, row_shape=(negatives,)) as array,
        ):
            for start, stop in itertools.pairwise(bounds):
                mined = _mined(encoder, examples, range(start, stop), progress, **options)
                uses[start:stop] = np.bincount(mined[mined >= 0], minlength=stop - start)
                array.append(np.where(mined < 0, -1, mined + start))
            for start in range(number, examples.num_examples, BLOCK_SIZE):
                rest = min(BLOCK_SIZE, examples.num_examples - start)
                array.append(np.full((rest, negatives), -1))
        if not uses.any():
            raise ValueError(
                f"No negatives were found in blocks of {number // blocks:,} examples with "
                f"skip_top {skip_top} and margin {margin}. Use larger blocks or more data, or "
                "lower --skip_top."
            )
        facts = {
            "split": "train",
            "examples": examples.num_examples,
            "mined_examples": number,
            "texts_sha256": examples.checksum(PAIR),
            "dtype": DTYPE,
            "checkpoint": os.fspath(checkpoint),
            "weights_sha256": file_checksum(*checkpoints.weights_files(checkpoint)),
            "block_size": block_size,
            **options,
        }
        facts = FORMAT.write_facts(written, facts)
    return {
        **facts,
        "found": float(uses.sum() / (number * negatives)),
        "most_used": int(uses.max()),
        "seconds": time.monotonic() - started,
    }


def _opened(data: str, checkpoint: str) -> Any:
    """Open the training examples in a folder of token ids.

    Texts are cut to the `max_tokens` of the model in `checkpoint`.
    """
    if kind_of(data) is not Kind.TOKEN_IDS:
        raise ValueError(
            f"{data!r} has no token ids. "
            + (
                put_aside(data)
                or "Write token ids with `convert-tf tokenize` and pass that folder as --data."
            )
        )
    folder, config = open_data(data, None, None, checkpoint)
    return folder.open(
        "train", max_tokens=config.max_tokens, with_extra_contexts=config.multi_context
    )


def _mined(
    encoder: DualEncoder, examples: Any, block: range, progress: Progress, **options: Any
) -> np.ndarray:
    """Return the hard negatives for a block of examples, as `hard_negatives` returns them."""
    contexts, responses = _encode(encoder, SelectedExamples(examples, block), progress)
    numbers = np.arange(block.start, block.stop)
    return hard_negatives(
        contexts,
        responses,
        context_groups=text_groups(examples.texts("context", numbers)),
        response_groups=text_groups(examples.texts("response", numbers)),
        count=progress.add,
        **options,
    )


def _encode(
    encoder: DualEncoder, examples: Examples, progress: Progress
) -> tuple[np.ndarray, np.ndarray]:
    """Return the encodings of contexts and responses, each float32 `[examples, encoding_dim]`."""
    context = "both_encoding" if encoder.config.multi_context else "context_encoding"
    batches = EvaluationBatches(examples, encoder.config.max_tokens, batch_size=BATCH_SIZE)
    names = (context, "response_encoding")
    encodings = encode_batches(encoder, batches, names, count=progress.add)
    contexts, responses = (encodings[name].astype(np.float32, copy=False) for name in names)
    if not np.isfinite(contexts).all() or not np.isfinite(responses).all():
        raise ValueError(
            "The encodings contain NaN or infinite numbers. Use another checkpoint, or "
            "--precision=float32."
        )
    return contexts, responses
