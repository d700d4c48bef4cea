"""Average the weights of a model before and after further training.

    python hub_modules/recipes/mean.py runs/further convert_small 0.4 runs/mean
    python hub_modules/recipes/mean.py runs/further convert_small 0.4 runs/mean texts.jsonl.zst
    python hub_modules/recipes/mean.py runs/further convert_small 0.4 runs/mean texts.jsonl.zst runs/a

Here, 0.4 is the weight of the second model, the one before training. The mean keeps most of what
either model has learnt (arXiv 2109.01903). With a file of texts, the similarity maps of the two
models are averaged too. Then the map is rotated to the principal axes of its vectors for these
texts. Its scale is that of the second model: the two terms of sentence encodings keep their ratio.
Without texts, the mean has no map; fit one with `convert-tf similarity`. The last command uses the
map of runs/a instead of that of the first model.
"""

import functools
import random
import sys
import tempfile
from pathlib import Path

import numpy as np
from single_texts import rows_of

from convert_tf import SentenceEncoder
from convert_tf.checkpoints.facts import training_facts
from convert_tf.checkpoints.folder import (
    load_checkpoint,
    load_similarity_map,
    save_checkpoint,
)
from convert_tf.checkpoints.released import model_path
from convert_tf.models.distillation import ADDED_LENGTH, SENTENCE_SCALE, similarity_map

_TEXTS = 20_000


def mean_map(after: np.ndarray, before: np.ndarray, of_before: float) -> np.ndarray:
    """Average two similarity maps, `[reduced_dim, dim]` each.

    A rotation of the similarity vectors does not change their cosines. So the first map is rotated
    to be as close as possible to the second one before they are averaged. If the maps differ in
    width, the first one is projected to the width of the second one.
    """
    left, _, right = np.linalg.svd(after.T @ before, full_matrices=False)
    return (1 - of_before) * (after @ left @ right) + of_before * before


def turned_map(kernel: np.ndarray, mean: str, before: str, texts: str) -> np.ndarray:
    """Rotate an averaged map to the principal axes of its vectors, and scale it.

    Args:
      kernel: the averaged map, `[reduced_dim, dim]`.
      mean: folder of the averaged model, which needs no map.
      before: name or folder of the model before training.
      texts: file with texts.
    """
    different = [*dict.fromkeys(row["text"] for row in rows_of(Path(texts)))]
    sample = random.Random(0).sample(different, min(_TEXTS, len(different)))
    encoder = SentenceEncoder(before)
    reduced, sentences = (encoder.encode(sample, kind=kind) for kind in ("reduced", "sentence"))
    added = sentences / SENTENCE_SCALE - reduced
    ratio = np.linalg.norm(added, axis=1).mean() / np.linalg.norm(reduced, axis=1).mean()
    turned = similarity_map(SentenceEncoder(mean).encode(sample, kind="reduced"), kernel)
    return turned * np.float32(ratio / ADDED_LENGTH)


def main(
    after: str,
    before: str,
    share: str,
    output: str,
    texts: str | None = None,
    map_of: str | None = None,
) -> None:
    folders = [model_path(name, wants_module=True) for name in (after, before)]
    (mean, vocabulary), (earlier, _) = map(load_checkpoint, folders)
    if mean.config != earlier.config:
        raise ValueError(
            f"{after!r} and {before!r} have different configurations, so their weights cannot be "
            f"averaged. They differ in {', '.join(mean.config.differences(earlier.config))}."
        )
    of_before = float(share)
    pairs = zip(mean.trainable_variables, earlier.trainable_variables, strict=True)
    for variable, value in pairs:
        variable.assign((1 - of_before) * np.asarray(variable) + of_before * np.asarray(value))
    table = mean.trunk.embedding
    if table.quantizer is not None:
        low, high = table.quantizer.range_of(table.table)
        table.quantizer_weights["range_min"].assign(low)
        table.quantizer_weights["range_max"].assign(high)
    facts = training_facts(after)
    for measured in ("evaluation", "similarity", "opposites"):  # measured on `after`
        facts.pop(measured, None)
    save = functools.partial(save_checkpoint, vocabulary=vocabulary, training=facts)
    kernel = None
    if texts is not None:
        maps = [load_similarity_map(folder) for folder in (map_of or folders[0], folders[1])]
        with tempfile.TemporaryDirectory(dir=Path(output).parent) as without_map:
            save(without_map, mean)
            kernel = turned_map(mean_map(*maps, of_before), without_map, before, texts)
    save(output, mean, similarity_map=kernel)
    print(f"wrote {output}{' with a similarity map' if kernel is not None else ''}")


if __name__ == "__main__":
    main(*sys.argv[1:])
