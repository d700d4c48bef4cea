"""The model card of an exported ranker, made from what its checkpoint and its files say."""

from collections.abc import Mapping
from typing import Any

from convert_tf.checkpoint import shown_name
from convert_tf.model_card import card_text, evaluation_rows, file_rows
from convert_tf.rankers import RankerConfig


def ranker_card(
    config: RankerConfig,
    facts: dict[str, Any],
    *,
    context_tokens: int,
    candidate_tokens: int,
    network_bits: int,
    sizes: Mapping[str, int],
    notes: str = "",
) -> str:
    """A model card, as Markdown.

    Args:
      config: the ranker.
      facts: what the checkpoint says of the training; lines without facts are left out.
      context_tokens, candidate_tokens: longest texts that the module reads.
      network_bits: of the stored weights.
      sizes: bytes of each file of the module, the card left out.
      notes: Markdown of the maker's own.

    Returns:
      The text of the card.

    Reference: arXiv 1810.03993 (model cards).
    """
    head = config.head
    kinds = {"bi": "Bi-encoder", "poly": "Poly-encoder", "cross": "Cross-encoder"}
    example = [
        "import tensorflow_hub as hub, tensorflow_text",
        "module = hub.load(folder)",
        'module.score(["how are you?"], [["fine", "a fish"]])',
    ]
    if head.head != "cross":
        example += [
            'candidates = module.encode_candidates(["fine", "a fish"])["default"]',
            'module.score_encoded(["how are you?"], candidates)["default"]',
        ]
    return card_text(
        "Ranker of responses",
        f"{kinds[head.head]} (arXiv 1905.01969) on a trunk of the kind `{config.trunk}`, exported "
        "by convert_tf. Loading it needs `tensorflow` and `tensorflow_text`:",
        example=example,
        tables={
            "Model": [
                ("tokenizer", config.tokenizer),
                ("vocabulary", f"{config.model.vocab_size:,} entries"),
                *_head_rows(config),
                ("contexts", f"the last {context_tokens} tokens are read"),
                ("candidates", f"the first {candidate_tokens} tokens are read"),
            ],
            "Files": file_rows(network_bits, sizes),
            "Training": _training_rows(facts),
            "Evaluation during training": evaluation_rows(facts),
        },
        limits=[
            "A context is one text: all turns joined with spaces, the newest last. Where it is "
            "longer than is read, the oldest tokens are left out.",
            "Scores compare the candidates of one context; they are no probabilities.",
            "Weights are rounded in the files.",
        ],
        notes=notes,
    )


def _head_rows(config: RankerConfig) -> list[tuple[str, Any]]:
    head = config.head
    rows: list[tuple[str, Any]] = [("head", head.head), ("reduction", head.reduction)]
    if head.head == "poly":
        rows.append(("context vectors", f"{head.poly_codes}, {head.poly_variant}"))
    if head.separate_trunks:
        rows.append(("trunks", "one for contexts, one for candidates"))
    return rows


def _training_rows(facts: dict[str, Any]) -> list[tuple[str, Any]]:
    train = facts.get("train", {})
    # A card is published: the names of files, not where its maker keeps them.
    names = {"data": "data", "dev_data": "dev data", "init_from": "started from"}
    rows: list[tuple[str, Any]] = [
        (name, f"`{shown_name(facts[key])}`") for key, name in names.items() if facts.get(key)
    ]
    options = ("steps", "batch_size", "optimizer", "learning_rate", "seed")
    rows += [(name.replace("_", " "), train[name]) for name in options if name in train]
    if "precision" in facts:
        rows.append(("precision", facts["precision"]))
    return rows
