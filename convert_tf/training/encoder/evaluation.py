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
    count: Callable[[int], None] = lambda examples: None,
) -> dict[str, np.ndarray]:
    """Encode packed batches with a `DualEncoder`.

    Args:
      encoder: the model.
      batches: packed batches.
      names: names of the outputs to return. Default: all outputs.
      count: called with the number of examples in each batch.

    Returns:
      A dict of the outputs by name, `[examples, …]`.
    """
    parts: list[dict[str, np.ndarray]] = []
    for batch in batches:
        outputs = encoder.predict_on_batch(batch)
        parts.append({name: np.asarray(outputs[name]) for name in names or outputs})
        count(len(next(iter(parts[-1].values()))))
    return {name: np.concatenate([part.pop(name) for part in parts]) for name in [*parts[0]]}


def evaluate_encoder(encoder: DualEncoder, batches: Iterable[dict[str, Any]]) -> dict[str, float]:
    """Return R100@1, MRR and the number of examples.

    Args:
      encoder: the model.
      batches: packed batches.

    Returns:
      A dict with `R100@1`, `MRR` and `examples`. A multi-context model is measured with its
      encoding of the context and the earlier turns; the dict then also has `context/R100@1`. If at
      least 100 examples have earlier turns, the dict also has `with_history/examples` and, for
      these examples, `extra_context/R100@1` (earlier turns alone), `with_history/R100@1` (context
      and earlier turns) and `with_history/context/R100@1` (context alone).

    Raises:
      ValueError: if there are fewer than 100 examples, or an encoding is NaN.

    Reference: arXiv 1911.03688 §3.2 and footnote 9, §4.2 ("Leveraging Additional Contexts").
    """
    encodings = encode_batches(encoder, batches)
    context, responses = encodings["context_encoding"], encodings["response_encoding"]
    if not encoder.config.multi_context:
        return metrics.ranking_metrics(metrics.block_ranks(context, responses))

    def recall(name: str, contexts: np.ndarray, chosen: Any = slice(None)) -> None:
        ranks = metrics.block_ranks(contexts[chosen], responses[chosen])
        report[name] = metrics.recall_at_k(ranks, 1)

    both = encodings["both_encoding"]
    report = metrics.ranking_metrics(metrics.block_ranks(both, responses))
    recall("context/R100@1", context)
    with_history = encodings["has_extra_context"]
    if with_history.sum() >= metrics.BLOCK_SIZE:
        recall("extra_context/R100@1", encodings["extra_context_encoding"], with_history)
        recall("with_history/R100@1", both, with_history)
        recall("with_history/context/R100@1", context, with_history)
        block = metrics.BLOCK_SIZE
        report["with_history/examples"] = int(with_history.sum()) // block * block
    return report
