"""What a pre-training run measures: loss and accuracy of both objectives, and their curve."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from convert_tf.figures import picture
from convert_tf.training.pretraining.objective import PretrainingObjective


class Averages:
    """Weighted means of what the steps report, of each objective over its own batches."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = {}
        self._weights: dict[str, float] = {}

    def add(self, logs: dict[str, Any], batch: dict[str, np.ndarray]) -> None:
        """Adds the metrics of the model on one batch."""
        for name, value in logs.items():
            objective = name.partition("_")[0]
            if f"{objective}_weights" in batch:
                weight = float(batch[f"{objective}_weights"].sum())
                self._sums[name] = self._sums.get(name, 0.0) + weight * float(value)
                self._weights[name] = self._weights.get(name, 0.0) + weight

    def means(self) -> dict[str, float]:
        return {
            name: total / self._weights[name]
            for name, total in self._sums.items()
            if self._weights[name]
        }


def evaluate_pretraining(
    model: PretrainingObjective, batches: Iterable[dict[str, np.ndarray]]
) -> dict[str, float]:
    """Loss and accuracy of both objectives, with the names of the model's metrics."""
    averages = Averages()
    for batch in batches:
        averages.add(model.test_on_batch(batch, return_dict=True), batch)
    return averages.means()


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
