"""What a pre-training run measures: loss and accuracy of both objectives, and their curve."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from convert_tf.figures import picture
from convert_tf.training.pretraining.objective import PretrainingObjective


def trained_means(logs: dict[str, float]) -> dict[str, float]:
    """The metrics of training, without those of an objective that had no batch yet.

    Args:
      logs: means of the metrics of `PretrainingObjective`; a loss is 0 where nothing was counted.
    """
    return {
        f"{objective}_{metric}": logs[f"{objective}_{metric}"]
        for objective in ("masked", "next")
        for metric in ("loss", "accuracy")
        if logs.get(f"{objective}_loss")
    }


def evaluate_pretraining(
    model: PretrainingObjective, batches: Iterable[dict[str, np.ndarray]]
) -> dict[str, float]:
    """Loss and accuracy of both objectives, with the names of the model's metrics.

    Means over all masked tokens and all pairs.
    """
    sums: dict[str, float] = {}
    weights: dict[str, float] = {}
    for batch in batches:
        for name, value in model.test_on_batch(batch, return_dict=True).items():
            counted = batch.get(f"{name.partition('_')[0]}_weights")
            if counted is not None:
                weight = float(counted.sum())
                sums[name] = sums.get(name, 0.0) + weight * float(value)
                weights[name] = weights.get(name, 0.0) + weight
    return {name: total / weights[name] for name, total in sums.items() if weights[name]}


@picture
def draw_curve(rows: list[dict[str, Any]]) -> Any:
    """Both losses on the evaluation split over steps."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots(1, 2)
    for axis, (name, label) in zip(
        axes,
        (
            ("masked_loss", "masked language model, nats per token"),
            ("next_loss", "next utterance, nats per pair"),
        ),
        strict=True,
    ):
        for source, style in (("train", "--"), ("eval", "-")):
            points = [(r["step"], r[source][name]) for r in rows if name in r.get(source, {})]
            if points:
                axis.plot(*zip(*points, strict=True), ls=style, marker=".", label=source)
        axis.set_xlabel("steps")
        axis.set_ylabel(label)
        axis.grid()
        axis.legend()
    return figure
