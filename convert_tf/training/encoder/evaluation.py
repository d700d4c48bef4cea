"""Encode examples with the Keras model, and measure R100@1 and MRR on held-out examples."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from convert_tf import metrics
from convert_tf.models.encoder import DualEncoder


def encode_batches(
    encoder: DualEncoder,
    batches: Iterable[dict[str, Any]],
    names: Sequence[str] = (),
    *,
    columns: Sequence[str] = (),
    count: Callable[[int], None] = lambda examples: None,
) -> dict[str, np.ndarray]:
    """Encode packed batches with a `DualEncoder`.

    Args:
      encoder: the encoder.
      batches: packed batches.
      names: names of the outputs to return. Default: all outputs.
      columns: names of columns of the batches to return too, if the batches have them.
      count: function that is called after each batch with the number of examples in it.

    Returns:
      A dict from the name of an output or a column to its values for all examples,
      `[examples, …]`.
    """
    parts: list[dict[str, np.ndarray]] = []
    for batch in batches:
        outputs = encoder.predict_on_batch(batch)
        parts.append({name: np.asarray(outputs[name]) for name in names or outputs})
        parts[-1] |= {name: np.asarray(batch[name]) for name in columns if name in batch}
        count(len(next(iter(parts[-1].values()))))
    return {name: np.concatenate([part.pop(name) for part in parts]) for name in [*parts[0]]}


def evaluate_encoder(encoder: DualEncoder, batches: Iterable[dict[str, Any]]) -> dict[str, float]:
    """Measure R100@1 and MRR on held-out examples.

    Args:
      encoder: the encoder to evaluate.
      batches: packed batches of the examples. If they have `response_groups`, copies of the correct
        response do not count as wrong.

    Returns:
      A dict with `R100@1`, `MRR` and `examples`, the number of examples. For a multi-context model,
      these metrics use its encoding of context and earlier turns together, and the dict also has
      `context/R100@1` for the context alone. If at least 100 examples have earlier turns, the dict
      also has `with_history/examples`, the number of these examples. The R100@1 on them is given
      for the earlier turns alone (`extra_context/R100@1`), for context and earlier turns
      (`with_history/R100@1`) and for the context alone (`with_history/context/R100@1`).

    Raises:
      ValueError: if there are fewer than 100 examples, or an encoding is NaN.

    Reference: arXiv 1911.03688 §3.2 and footnote 9, §4.2 ("Leveraging Additional Contexts").
    """
    encodings = encode_batches(encoder, batches, columns=["response_groups"])
    context, responses = encodings["context_encoding"], encodings["response_encoding"]
    groups = encodings.get("response_groups")

    def ranks_of(contexts: np.ndarray, chosen: Any = slice(None)) -> np.ndarray:
        return metrics.block_ranks(
            contexts[chosen],
            responses[chosen],
            response_groups=None if groups is None else groups[chosen],
        )

    if not encoder.config.multi_context:
        return metrics.ranking_metrics(ranks_of(context))

    def recall(name: str, contexts: np.ndarray, chosen: Any = slice(None)) -> None:
        report[name] = metrics.recall_at_k(ranks_of(contexts, chosen), 1)

    both = encodings["both_encoding"]
    report = metrics.ranking_metrics(ranks_of(both))
    recall("context/R100@1", context)
    with_history = encodings["has_extra_context"]
    if with_history.sum() >= metrics.BLOCK_SIZE:
        recall("extra_context/R100@1", encodings["extra_context_encoding"], with_history)
        recall("with_history/R100@1", both, with_history)
        recall("with_history/context/R100@1", context, with_history)
        block = metrics.BLOCK_SIZE
        report["with_history/examples"] = int(with_history.sum()) // block * block
    return report
