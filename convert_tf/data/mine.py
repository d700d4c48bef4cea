"""Hard negatives for `train.py --hard_negatives`: wrong responses that a trained model ranks high.

```
python -m convert_tf.data.mine --checkpoint runs/convert --data ids/ --output negatives/
python train.py --data ids/ --hard_negatives negatives/ --init_from runs/convert …
```

Each context is held against the responses of its own block of examples, which are neighbours in the
token ids and otherwise have nothing to do with each other. Of the wrong ones the best `--skip_top`
are left out, as many of them would be right, and the next `--negatives` are kept.
`convert_tf.data.negatives` says what is in the folder.
"""

import hashlib
import itertools
import json
import math
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from absl import app, flags

from convert_tf import checkpoint as checkpoints
from convert_tf.config_base import PRECISIONS
from convert_tf.data.array_writer import GrowingArray
from convert_tf.data.arrays import is_array_folder
from convert_tf.data.batches import PAIR, Examples
from convert_tf.data.negative_search import hard_negatives
from convert_tf.data.negatives import DTYPE, FACTS_FILE, FORMAT_VERSION, array_file, negative_files
from convert_tf.data.output_folder import OutputFolder
from convert_tf.data.packing import ROW_MULTIPLE, pack_batch, text_groups
from convert_tf.data.progress import Progress
from convert_tf.encoders import DualEncoder
from convert_tf.files import write_file
from convert_tf.trainer import choose_precision, compiles_shapes
from convert_tf.training_data import open_data

BATCH_SIZE = 512  # examples that are encoded together
BLOCK_SIZE = 131_072


def mine(
    checkpoint: str,
    data: str,
    output: str,
    *,
    split: str = "train",
    negatives: int = 8,
    skip_top: int = 10,
    margin: float | None = None,
    block_size: int = BLOCK_SIZE,
    precision: str = "auto",
    overwrite: bool = False,
) -> dict[str, Any]:
    """Writes the hard negatives of a split of token ids.

    A multi-context model ranks by the encoding of the context and the earlier turns. Memory holds
    the encodings of one block, and an array of the size of the result. The folder gets its name
    when it is complete.

    Args:
      checkpoint: model directory of a dual encoder with the vocabulary of the token ids.
      data: folder of token ids.
      output: folder to write.
      split: which examples.
      negatives: how many of an example are kept at most.
      skip_top: so many of its best wrong responses are left out.
      margin: those with a cosine above that of the right response plus this are left out; None
        keeps them.
      block_size: most examples of a block; blocks are of about equal size.
      precision: of the encoder's computations, as `TrainConfig.precision`.
      overwrite: whether negatives that are in `output` are replaced.

    Returns:
      What `negatives.json` says, and `found`, the share of the wanted negatives, `most_used`, how
      often the response is used that is used most often, and `seconds`.

    Raises:
      ValueError: an option is out of range, `data` holds no token ids or those of another
        vocabulary, no negative was found, or `output` holds something.
      OSError: a file cannot be read or written.
    """
    if min(negatives, block_size - 1) < 1 or skip_top < 0:
        raise ValueError(
            "An example gets one negative or more, out of a block of two or more, behind no or "
            f"some that are left out. Received: negatives {negatives}, block_size {block_size}, "
            f"skip_top {skip_top}. Correct them."
        )
    if not is_array_folder(data):
        raise ValueError(
            f"Negatives are mined from token ids. Received: {data!r}, which holds none. Write some "
            "with `python -m convert_tf.data.tokenize` and pass them as --data."
        )
    _check_output(output, overwrite=overwrite)
    started = time.monotonic()
    folder, config = open_data(data, None, None, checkpoint)
    examples: Any = folder.open(
        split, max_tokens=config.max_tokens, with_extra_contexts=config.multi_context
    )
    encoder, _ = checkpoints.load_checkpoint(checkpoint, dtype=choose_precision(precision))
    number = examples.num_examples
    blocks = math.ceil(number / block_size)
    print(
        f"{number:,} contexts, each against about {number // blocks:,} responses: "
        f"{number * (number // blocks) * config.encoding_dim / 1e12:,.3g} T multiplications beside "
        f"the encoding, and {number // blocks * config.encoding_dim * 12 / 1e9:,.2g} GB"
    )
    place = OutputFolder(output, data_files=negative_files, overwrite=overwrite)
    uses = np.zeros(number, np.int64)
    with place.open(), Progress("examples encoded or searched", total=2 * number) as progress:
        array = GrowingArray(Path(place.written) / array_file(split), DTYPE, row_shape=(negatives,))
        try:
            bounds = np.linspace(0, number, blocks + 1).astype(np.int64)
            for start, stop in itertools.pairwise(bounds):
                block = np.arange(start, stop)
                contexts, responses = _encode(encoder, examples, block, progress)
                mined = hard_negatives(
                    contexts,
                    responses,
                    context_groups=text_groups(examples.texts("context", block)),
                    response_groups=text_groups(examples.texts("response", block)),
                    negatives=negatives,
                    skip_top=skip_top,
                    margin=margin,
                    count=progress.add,
                )
                uses[start:stop] = np.bincount(mined[mined >= 0], minlength=len(block))
                array.append(np.where(mined < 0, -1, mined + start))
            array.close()
        finally:
            array.abort()
        if not uses.any():
            raise ValueError(
                "Mining must find a wrong response for some context. Received: none in blocks of "
                f"{number // blocks:,} examples with skip_top {skip_top} and margin {margin}. Use "
                "larger blocks or more data, or lower --skip_top."
            )
        facts = {
            "version": FORMAT_VERSION,
            "split": split,
            "examples": number,
            "texts_sha256": examples.checksum(PAIR),
            "negatives": negatives,
            "dtype": DTYPE,
            "checkpoint": os.fspath(checkpoint),
            "weights_sha256": _weights_sha256(checkpoint),
            "skip_top": skip_top,
            "margin": margin,
            "block_size": block_size,
        }
        write_file(Path(place.written) / FACTS_FILE, json.dumps(facts, indent=2) + "\n")
        place.publish()
    return {
        **facts,
        "found": float(uses.sum() / (number * negatives)),
        "most_used": int(uses.max()),
        "seconds": time.monotonic() - started,
    }


def _encode(
    encoder: DualEncoder, examples: Examples, numbers: np.ndarray, progress: Progress
) -> tuple[np.ndarray, np.ndarray]:
    """Contexts and responses of examples, float32 `[examples, encoding_dim]` each."""
    context = "both_encoding" if encoder.config.multi_context else "context_encoding"
    found = {
        name: np.empty((len(numbers), encoder.config.encoding_dim), np.float32)
        for name in (context, "response_encoding")
    }
    for start in range(0, len(numbers), BATCH_SIZE):
        part = slice(start, start + BATCH_SIZE)
        batch = pack_batch(
            examples.token_ids(numbers[part]),
            examples.names,
            row_tokens=max(64, encoder.config.max_tokens),
            padding_id=examples.padding_id,
            row_multiple=ROW_MULTIPLE if compiles_shapes() else 1,
        )
        outputs = encoder.predict_on_batch(batch)
        for name, own in found.items():
            own[part] = outputs[name]
        progress.add(len(own[part]))
    if not all(np.isfinite(own).all() for own in found.values()):
        raise ValueError(
            "Encodings must be numbers. Received: NaN or infinite ones. Use another checkpoint, or "
            "--precision=float32."
        )
    return found[context], found["response_encoding"]


def _weights_sha256(folder: str) -> str:
    digest = hashlib.sha256()
    for path in checkpoints.weights_files(folder):
        with open(path, "rb") as file:
            while piece := file.read(1 << 20):
                digest.update(piece)
    return digest.hexdigest()


def _check_output(output: str, *, overwrite: bool) -> None:
    if negative_files(output):
        if not overwrite:
            raise ValueError(
                f"Negatives that are there are kept. Received: {output!r}, which holds some. Pass "
                "--overwrite, or choose another --output."
            )
    elif os.path.isdir(output) and any(not name.startswith(".") for name in os.listdir(output)):
        raise ValueError(
            f"Negatives are written to a folder of their own. Received: {output!r}, which holds "
            "something else. Choose another --output, or empty it."
        )


def summary(facts: Mapping[str, Any]) -> str:
    """What `mine` returned, for reading."""
    return (
        f"{facts['examples']:,} examples of {facts['split']} with up to {facts['negatives']} "
        f"negatives each; {100 * facts['found']:.1f} % of them found, one response at most "
        f"{facts['most_used']:,} times; {facts['seconds']:,.0f} s"
    )


def _define_flags() -> None:
    flags.DEFINE_string("checkpoint", None, "Model directory of a dual encoder.", required=True)
    flags.DEFINE_string("data", None, "Folder of token ids.", required=True)
    flags.DEFINE_string("output", None, "Folder of negatives to write.", required=True)
    flags.DEFINE_string("split", "train", "Which examples.")
    flags.DEFINE_integer("negatives", 8, "Kept for an example at most.", lower_bound=1)
    flags.DEFINE_integer(
        "skip_top", 10, "So many of the best wrong responses are left out.", lower_bound=0
    )
    flags.DEFINE_float(
        "margin",
        None,
        "Responses with a cosine above the right one's plus this are left out; may be negative. "
        "Default: none is.",
    )
    flags.DEFINE_integer(
        "block_size",
        BLOCK_SIZE,
        "Responses that a context is held against: time and memory grow with it.",
        lower_bound=2,
    )
    flags.DEFINE_enum("precision", "auto", PRECISIONS, "Of the encoder.")
    flags.DEFINE_bool("overwrite", False, "Replace negatives that are in --output already.")


def _run(argv: Sequence[str]) -> None:
    values = flags.FLAGS
    if len(argv) > 1:
        raise app.UsageError(f"Flags are given as --name=value. Received: {argv[1:]}.")
    try:
        facts = mine(
            values.checkpoint,
            values.data,
            values.output,
            split=values.split,
            negatives=values.negatives,
            skip_top=values.skip_top,
            margin=values.margin,
            block_size=values.block_size,
            precision=values.precision,
            overwrite=values.overwrite,
        )
    except (ValueError, OSError) as error:
        sys.exit(f"mine: {error}")
    print(summary(facts))
    print(f"wrote {values.output}")


if __name__ == "__main__":
    _define_flags()
    app.run(_run)
