"""Writes a multi-context model whose other weights are those of a single-context one.

    python hub_modules/recipes/with_history.py runs/convert runs/convert_multi_context runs/start

takes the networks of the history from the second one, which was trained on an earlier state of the
first. They then learn again (`--history_only`), from nearly what they should be.
"""

import sys

from convert_tf.checkpoints.facts import training_facts
from convert_tf.checkpoints.folder import (
    load_checkpoint,
    load_initial_weights,
    load_similarity_map,
    save_checkpoint,
)


def main(single: str, multi: str, output: str) -> None:
    model, vocabulary = load_checkpoint(multi)
    if not model.config.multi_context:
        raise ValueError(
            f"The second model reads a history. Received: {multi!r}, which does not. Take another."
        )
    networks = (model.extra_context_side, model.both_side)
    kept = [network.get_weights() for network in networks]
    load_initial_weights(model, single)  # which starts them as the network of the context
    for network, weights in zip(networks, kept, strict=True):
        network.set_weights(weights)
    facts = {name: fact for name, fact in training_facts(single).items() if name != "evaluation"}
    save_checkpoint(
        output,
        model,
        vocabulary=vocabulary,
        training=facts,
        similarity_map=load_similarity_map(single),
    )
    print(f"wrote {output}")


if __name__ == "__main__":
    main(*sys.argv[1:])
