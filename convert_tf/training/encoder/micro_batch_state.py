"""The state that one micro-batch passes to the next, on every backend."""

from collections.abc import Callable
from typing import Any, NamedTuple


class State(NamedTuple):
    """Values of untrained variables that change when a micro-batch is encoded.

    Attributes:
      seeds: seeds of dropout. Each micro-batch starts where the one before ended.
      others: the quantizer's range and counter. Each micro-batch starts from the values before the
        step, so that a step counts once.
    """

    seeds: list[Any]
    others: list[Any]


# Values of the variables that are trained, seeds, others, one micro-batch → outputs, seeds, others.
EncodePart = Callable[
    [list[Any], list[Any], list[Any], dict[str, Any]], tuple[dict[str, Any], list[Any], list[Any]]
]
