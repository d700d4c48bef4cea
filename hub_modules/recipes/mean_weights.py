"""Writes a model whose weights lie between those of two models of one shape.

    python hub_modules/recipes/mean_weights.py runs/convert runs/convert_part2 0.4 runs/convert_mean

gives the second one a share of 0.4. Of a model and what it was trained on to, this keeps most of
what either knows (arXiv 2109.01903).
"""

import sys

import numpy as np

from convert_tf.checkpoints.facts import training_facts
from convert_tf.checkpoints.folder import load_checkpoint, save_checkpoint


def main(one: str, other: str, share: str, output: str) -> None:
    mean, vocabulary = load_checkpoint(one)
    further, _ = load_checkpoint(other)
    if mean.config != further.config:
        raise ValueError(
            f"Both models have one shape. Received: {one!r} and {other!r}, which differ in "
            f"{', '.join(mean.config.differences(further.config))}. Choose others."
        )
    own = float(share)
    for variable, value in zip(
        mean.trainable_variables, further.trainable_variables, strict=True
    ):
        variable.assign((1 - own) * np.asarray(variable) + own * np.asarray(value))
    table = mean.trunk.embedding
    if table.quantizer is not None:
        low, high = table.quantizer.range_of(table.table)
        table.quantizer_weights["range_min"].assign(low)
        table.quantizer_weights["range_max"].assign(high)
    facts = training_facts(one)
    for said_of_one in ("evaluation", "similarity"):
        facts.pop(said_of_one, None)
    save_checkpoint(output, mean, vocabulary=vocabulary, training=facts)
    print(f"wrote {output}")


if __name__ == "__main__":
    main(*sys.argv[1:])
