"""Draw the figure of docs/results.md: accuracy against speed, with size as the area of a circle.

```
pip install -e '.[plots]'
python benchmarks/accuracy_speed.py --page docs/results.md --output docs/accuracy_speed.png
```

The numbers come from the first table under the heading "Accuracy, speed and size" of the page. A
row without a time, such as TF-IDF, is drawn as a horizontal line.
"""

import re
from pathlib import Path
from typing import Any, NamedTuple

from absl import app, flags

from convert_tf.figures import BLUE, GREY, RED, picture, write_picture

_PAGE = flags.DEFINE_string("page", "docs/results.md", "Page with the table.")
_OUTPUT = flags.DEFINE_string("output", "docs/accuracy_speed.png", "PNG file to write.")

HEADING = "## Accuracy, speed and size"


class Row(NamedTuple):
    """A row of the table.

    Attributes:
      name: name of the encoder.
      scores: accuracies in percent, by column.
      milliseconds: CPU time per sentence; None if the cell is empty.
      megabytes: size of the file; None if the cell is empty.
    """

    name: str
    scores: dict[str, float]
    milliseconds: float | None
    megabytes: float | None


def read_table(text: str) -> list[Row]:
    """Return the rows of the first table under `HEADING`.

    Args:
      text: the page, as Markdown.

    Raises:
      ValueError: if the page has no such table.
    """
    section = text.partition(f"{HEADING}\n")[2].partition("\n## ")[0]
    lines = re.findall(r"^\|(.*)\|$", section.partition("\n```")[0], re.MULTILINE)
    # A dagger marks figures that were measured with older weights.
    cells = [[cell.strip(" †").strip("`") for cell in line.split("|")] for line in lines]
    if len(cells) < 3:
        raise ValueError(f"The page has no table under '{HEADING}'.")
    (_, *columns), _, *rows = cells
    *accuracies, _, _ = columns
    return [
        Row(
            name,
            {
                column: float(number)
                for column, number in zip(accuracies, numbers, strict=False)
                if number
            },
            float(numbers[-2]) if numbers[-2] else None,
            float(numbers[-1]) if numbers[-1] else None,
        )
        for name, *numbers in rows
    ]


@picture
def draw(rows: list[Row]) -> Any:
    """Draw one panel for each column of accuracies."""
    from matplotlib.figure import Figure

    panels = list(rows[0].scores)
    figure = Figure(figsize=(3.6 * len(panels), 3.2))
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        for row in rows:
            score = row.scores[panel]
            if row.milliseconds is None or row.megabytes is None:
                axes.axhline(score, color=GREY, linestyle="--")
                axes.annotate(
                    row.name, (1, score), xycoords=("axes fraction", "data"),
                    ha="right", va="bottom",
                )  # fmt: skip
                continue
            colour = BLUE if row.name.startswith("convert") else RED
            axes.scatter(row.milliseconds, score, s=12 * row.megabytes, color=colour, alpha=0.7)
            axes.annotate(
                f"{row.name}\n{row.megabytes:g} MB", (row.milliseconds, score),
                xytext=(0, -14), textcoords="offset points", ha="center", va="top", fontsize=7.5,
            )  # fmt: skip
        scores = [row.scores[panel] for row in rows]
        margin = 0.25 * (max(scores) - min(scores))
        axes.set_ylim(min(scores) - margin / 2, max(scores) + margin)
        axes.set_xlim(0, 1.25 * max(row.milliseconds or 0 for row in rows))
        axes.set_xlabel("CPU milliseconds per sentence (left is faster)")
        axes.set_ylabel("percent")
        axes.set_title(panel)
    return figure


def main(argv: list[str]) -> None:
    del argv
    rows = read_table(Path(_PAGE.value).read_text(encoding="utf-8"))
    write_picture(_OUTPUT.value, lambda: draw(rows))


if __name__ == "__main__":
    app.run(main)
