"""A map of labelled examples: where intents lie to an encoder, and which ones lie in each other."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from convert_tf.figures import GREY, SMALLEST, picture

_SIZE = (9, 7.5)  # inches
_MAX_NAMES = 80  # intents whose names are on the map
_FARTHEST_NAME = 80  # pixels, at 100 to the inch, from the middle of the points
_MAX_PERPLEXITY = 30


def map_places(vectors: np.ndarray, *, seed: int = 0) -> np.ndarray:
    """Two coordinates of each vector, near ones near each other: float `[n, 2]`, by t-SNE.

    Reference: van der Maaten & Hinton, "Visualizing Data using t-SNE", JMLR 9 (2008).
    """
    from sklearn.manifold import TSNE

    perplexity = min(_MAX_PERPLEXITY, (len(vectors) - 1) / 3)
    return TSNE(
        metric="cosine", init="random", perplexity=perplexity, random_state=seed
    ).fit_transform(vectors)


@picture
def intent_map(
    places: np.ndarray,
    labels: Sequence[str],
    suspects: Sequence[int],
    num_suspects: int | None = None,
) -> Any:
    """A point for each example, the name of each intent near its points, rings around suspects.

    No name covers another. Where there is no room for all, intents with more examples have theirs,
    and the number of the others is said.

    Args:
      places: float `[n, 2]`.
      labels: of each.
      suspects: numbers of examples.
      num_suspects: of how many these are the first; all by default.
    """
    from matplotlib.figure import Figure

    names, numbers = np.unique(np.array(labels, dtype=object).astype(str), return_inverse=True)
    figure = Figure(figsize=_SIZE)
    figure.set_layout_engine("none")
    panel = figure.add_axes((0, 0, 1, 1))
    panel.set_axis_off()
    panel.margins(0.08)
    for intent in range(len(names)):
        x, y = places[numbers == intent].T
        panel.scatter(x, y, s=8, linewidths=0)
    marked = places[[*suspects]].reshape(-1, 2)
    legend = None
    if len(marked):
        x, y = marked.T
        number = f"{len(marked)}"
        if num_suspects is not None and num_suspects > len(marked):
            number += f" of {num_suspects:,}"
        panel.scatter(
            x, y, s=36, facecolors="none", edgecolors="black", linewidths=0.9,
            label=f"nearer to another intent ({number})",
        )  # fmt: skip
        legend = panel.legend(loc="lower right")
    largest = np.argsort(-np.bincount(numbers), kind="stable")[:_MAX_NAMES]
    texts = []
    for intent in largest:
        x, y = np.median(places[numbers == intent], axis=0)
        text = panel.text(
            x, y, names[intent], fontsize=SMALLEST, ha="center", va="center",
            bbox={"facecolor": "white", "edgecolor": GREY, "linewidth": 0.4, "pad": 1},
        )  # fmt: skip
        texts.append(text)
    num_unnamed = len(names) - _place(texts, legend, panel, figure)
    if num_unnamed:
        said = f"{num_unnamed} of {len(names)} intents have no room for their names"
        panel.text(0.01, 0.01, said, transform=panel.transAxes)
    return figure


def _place(texts: Sequence[Any], legend: Any, panel: Any, figure: Any) -> int:
    """Moves names off each other, with a line to where each was; how many have a place."""
    figure.draw_without_rendering()  # from now on texts have sizes
    panel.autoscale(False)
    boxes = [text.get_bbox_patch().get_window_extent() for text in texts]
    centres = np.array([(box.x0 + box.x1, box.y0 + box.y1) for box in boxes]) / 2
    taken = [legend.get_window_extent().extents] if legend else []
    found = name_places(
        centres, np.array([box.size for box in boxes]), taken=taken, room=figure.bbox.size
    )
    to_data = panel.transData.inverted()
    for text, before, place in zip(texts, centres, found, strict=True):
        if np.isnan(place).any():
            text.remove()
        elif (place != before).any():
            ends = to_data.transform([before, place])
            text.set_position(ends[1])
            panel.plot(*ends.T, color=GREY, linewidth=0.6)
    return int(np.isfinite(found).all(axis=1).sum())


def name_places(
    centres: np.ndarray,
    sizes: np.ndarray,
    *,
    taken: Sequence[Sequence[float]],
    room: Sequence[float],
) -> np.ndarray:
    """Where names go, the first ones first: as near to their centres as nothing is.

    Args:
      centres: float `[n, 2]`, in pixels.
      sizes: float `[n, 2]`, width and height of each name.
      taken: boxes in which no name may be: left, bottom, right and top of each.
      room: width and height of the picture.

    Returns:
      float `[n, 2]`: new centres; NaN where there is none near.
    """
    steps = np.arange(-_FARTHEST_NAME, _FARTHEST_NAME + 1, 2)
    shifts = np.stack(np.meshgrid(steps, steps), axis=-1).reshape(-1, 2)
    shifts = shifts[np.argsort(np.linalg.norm(shifts, axis=1), kind="stable")]
    boxes = np.array(taken, float).reshape(-1, 4)
    found = np.full(centres.shape, np.nan)
    for i, (centre, size) in enumerate(zip(centres, sizes / 2 + 1, strict=True)):
        low, high = centre + shifts - size, centre + shifts + size
        is_free = ((low >= 0) & (high <= room)).all(axis=1)
        for box in boxes:
            is_free &= ((low >= box[2:]) | (high <= box[:2])).any(axis=1)
        if is_free.any():
            first = is_free.argmax()
            found[i] = centre + shifts[first]
            boxes = np.vstack([boxes, [*low[first], *high[first]]])
    return found
