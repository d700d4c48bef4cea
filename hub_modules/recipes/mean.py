"""Average the weights of a model before and after further training.

    python hub_modules/recipes/mean.py runs/further convert_small 0.4 runs/mean

Here, 0.4 is the weight of the second model, the one before training. The mean keeps most of what
either model has learnt (arXiv 2109.01903). If both models have similarity maps, these are averaged
too. Otherwise, the mean has no map; fit one with `convert-tf similarity`.
"""

import sys

import numpy as np

from convert_tf.checkpoints.facts import training_facts
from convert_tf.checkpoints.folder import (
    load_checkpoint,
    load_similarity_map,
    save_checkpoint,
)
from convert_tf.checkpoints.released import model_path


def mean_map(after: np.ndarray, before: np.ndarray, of_before: float) -> np.ndarray:
    """Average two similarity maps, `[reduced_dim, dim]` each.

    A rotation of the similarity vectors does not change their cosines. So the first map is rotated
    to be as close as possible to the second one before they are averaged. If the maps differ in
    width, the first one is projected to the width of the second one.
    """
    left, _, right = np.linalg.svd(after.T @ before, full_matrices=False)
    return (1 - of_before) * (after @ left @ right) + of_before * before


def main(after: str, before: str, share: str, output: str) -> None:
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
    maps = [load_similarity_map(folder) for folder in folders]
    has_both = all(kernel is not None for kernel in maps)
    save_checkpoint(
        output, mean, vocabulary=vocabulary, training=facts,
        similarity_map=mean_map(*maps, of_before) if has_both else None,
    )
    print(f"wrote {output}{' with a similarity map' if has_both else ''}")


if __name__ == "__main__":
    main(*sys.argv[1:])
