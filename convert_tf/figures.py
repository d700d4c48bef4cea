"""The common style of all figures. Figures are readable in print and for colour-blind people.

Figures need matplotlib, which the extra `[plots]` installs. Without matplotlib, commands write
their numbers but no pictures, and print a note that matplotlib is missing.
"""

import functools
import io
import os
import sys
from collections.abc import Callable
from typing import Any, ParamSpec

from convert_tf.extras import MissingLibraryError, needs
from convert_tf.storage.files import write_file

# Paul Tol's "bright" palette: distinct for colour-blind readers and in greyscale.
BLUE, RED, GREEN, YELLOW, CYAN, PURPLE, GREY = COLOURS = (
    "#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb",
)  # fmt: skip
SMALLEST = 7  # the smallest font size, in points, that is readable in print
_STYLE = {
    "axes.grid": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "font.size": 9,
    "legend.fontsize": 8,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "figure.constrained_layout.use": True,
    "figure.facecolor": "white",
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "lines.linewidth": 1.5,
    "lines.markersize": 4,
    "savefig.bbox": "tight",
    "savefig.dpi": 200,  # enough for printers
}

_Arguments = ParamSpec("_Arguments")


def picture(draw: Callable[_Arguments, Any]) -> Callable[_Arguments, bytes]:
    """Decorate a function that draws a matplotlib `Figure`, so that it returns a PNG instead.

    The figure is drawn in the common style.

    Raises:
      MissingLibraryError: if matplotlib is not installed when the decorated function is called.
    """

    @functools.wraps(draw)
    def png(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> bytes:
        with needs("plots", "Drawing a picture"):
            import matplotlib
            from cycler import cycler

        style: Any = {**_STYLE, "axes.prop_cycle": cycler(color=COLOURS)}
        file = io.BytesIO()
        with matplotlib.rc_context(style):
            figure = draw(*args, **kwargs)
            figure.savefig(file)
        return file.getvalue()

    return png


def literal(name: str) -> str:
    """Return a text in the form in which matplotlib draws it as it is, even with dollar signs."""
    return name.replace("$", r"\$")


def write_picture(path: str | os.PathLike[str], draw: Callable[[], bytes]) -> bool:
    """Write a PNG. If matplotlib is missing, print a note on standard error instead.

    A note is printed only once per process.

    Args:
      path: the file to write. An existing file is replaced.
      draw: a function, decorated with `picture`, that returns the PNG.

    Returns:
      Whether the file was written.

    Raises:
      FileWriteError: if the file cannot be written.
    """
    try:
        png = draw()
    except MissingLibraryError as error:
        _say_once(f"note: no {os.path.basename(os.fspath(path))}: {error}")
        return False
    write_file(path, png)
    return True


@functools.cache
def _say_once(line: str) -> None:
    print(line, file=sys.stderr)
