"""What encoding a batch part by part hands from one part to the next, on every backend."""

from collections.abc import Callable
from typing import Any, NamedTuple


class State(NamedTuple):
    """What encoding changes: values of variables that are not trained.

    Attributes:
      seeds: of dropout; each part begins where the one before it ended.
      others: the range of the quantizer and its counter; each part begins with those from before
        the step and makes the same of them, so that a step counts once.
    """

    seeds: list[Any]
    others: list[Any]


# Values of the variables that are trained, seeds, others, one micro-batch → outputs, seeds, others.
EncodePart = Callable[
    [list[Any], list[Any], list[Any], dict[str, Any]], tuple[dict[str, Any], list[Any], list[Any]]
]
