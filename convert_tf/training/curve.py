"""`curve.png` of a run."""

from collections.abc import Sequence
from typing import Any

from convert_tf.figures import GREY, picture


@picture
def ranking_curve(rows: list[dict[str, Any]], splits: Sequence[str], names: Sequence[str]) -> Any:
    """Loss and recall over pairs seen.

    Args:
      rows: rows of `metrics.jsonl`.
      splits: which splits' recall is drawn.
      names: which of their metrics.

    Returns:
      A figure, which `picture` makes a PNG.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    recall_axis = figure.add_subplot()
    loss_axis = recall_axis.twinx()
    for split in splits:
        for name in names:
            points = [(r["pairs"], 100 * r[split][name]) for r in rows if name in r.get(split, ())]
            if points:
                recall_axis.plot(
                    *zip(*points, strict=True), marker="o", clip_on=False, label=f"{split} {name}"
                )
    losses = [(r["pairs"], r["ranking_loss"]) for r in rows if r["ranking_loss"] is not None]
    if losses:
        loss_axis.plot(*zip(*losses, strict=True), color=GREY, ls="--", label="training loss")
    recall_axis.set_xlabel("pairs seen")
    recall_axis.set_ylabel("recall, %")
    recall_axis.set_ylim(bottom=0)
    loss_axis.set_ylabel("ranking loss since the last point, nats per pair")
    recall_axis.grid()
    loss_axis.spines["right"].set_visible(True)
    figure.legend(
        handles=[*recall_axis.lines, *loss_axis.lines], loc="outside upper center", ncols=3
    )
    return figure
