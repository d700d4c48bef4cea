"""Average the weights of a model before and after further training.

    python hub_modules/recipes/mean.py runs/further convert_small 0.4 runs/mean

Here, 0.4 is the weight of the second model, the one before training. The mean keeps most of what
either model has learnt (arXiv 2109.01903). It has no similarity map. Fit one with
`convert-tf similarity`.
"""

import sys

import numpy as np

from convert_tf.checkpoints.facts import training_facts
from convert_tf.checkpoints.folder import load_checkpoint, save_checkpoint
from convert_tf.checkpoints.released import model_path


def main(after: str, before: str, share: str, output: str) -> None:
    mean, vocabulary = load_checkpoint(model_path(after, wants_module=True))
    further, _ = load_checkpoint(model_path(before, wants_module=True))
    if mean.config != further.config:
        raise ValueError(
            f"{after!r} and {before!r} have different configurations, so their weights cannot be "
            f"averaged. They differ in {', '.join(mean.config.differences(further.config))}."
        )
    of_before = float(share)
    pairs = zip(mean.trainable_variables, further.trainable_variables, strict=True)
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
    save_checkpoint(output, mean, vocabulary=vocabulary, training=facts)
    print(f"wrote {output}")


if __name__ == "__main__":
    main(*sys.argv[1:])
