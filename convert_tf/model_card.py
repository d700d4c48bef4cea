"""The model card of an exported module, made from what its checkpoint says."""

from pathlib import Path
from typing import Any

from convert_tf.config import ModelConfig

CARD_FILE = "MODEL_CARD.md"


def model_card(config: ModelConfig, facts: dict[str, Any], *, max_tokens: int) -> str:
    """A model card, as Markdown.

    Args:
      config: the model.
      facts: what the checkpoint says of the training: `data`, `precision`, `parameters`, `train`,
        `evaluation`; lines without facts are left out.
      max_tokens: longest sequence, in subwords, that the module reads.

    Returns:
      The text of the card.

    Reference: arXiv 1810.03993 (model cards).
    """
    encode_context = 'encode_context"](tensor)["default"]'
    if config.multi_context:
        encode_context = 'encode_context"](context=tensor, extra_context=earlier)["default"]'
    return "\n".join([
        "# Sentence encoder",
        "",
        "Dual encoder of the ConveRT kind (arXiv 1911.03688), exported by convert_tf. Loading it "
        "needs `tensorflow` and `tensorflow_text`:",
        "",
        "```python",
        "import tensorflow_hub as hub, tensorflow_text",
        "module = hub.load(folder)",
        'module(["how do I reset my password?"])',
        f'module.signatures["{encode_context}',
        "```",
        "",
        "## Model",
        "",
        *_table(_model_rows(config, facts, max_tokens)),
        "",
        "## Training",
        "",
        *_table(_training_rows(facts)),
        "",
        "## Evaluation during training",
        "",
        *_table(_evaluation_rows(facts)),
        "",
    ])  # fmt: skip


def _table(rows: list[tuple[str, Any]]) -> list[str]:
    if not rows:
        return ["The checkpoint says nothing of it."]
    return ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)]


def _model_rows(
    config: ModelConfig, facts: dict[str, Any], max_tokens: int
) -> list[tuple[str, Any]]:
    sizes = facts.get("parameters", {})
    rows: list[tuple[str, Any]] = [
        ("tokenizer", config.tokenizer),
        ("vocabulary", f"{config.vocab_size:,} entries, {config.num_oov_buckets:,} hash buckets"),
        ("blocks", f"{len(config.max_relative_attention)} of width {config.embedding_dim}"),
        ("`default`", f"{config.reduced_dim} numbers, not normalised"),
        ("`encode_context`, `encode_response`", f"{config.encoding_dim} numbers, L2-normalised"),
        ("longest text", f"{max_tokens} subwords are read, {config.max_tokens} in training"),
        ("stored", f"subword table in {min(config.embedding_bits, 16)} bits, the rest in 16"),
    ]
    if config.multi_context:
        rows.append(
            (
                "`extra_context`",
                'the earlier turns as one text, the most recent first; `""` for none',
            )
        )
    rows += [(f"{name} parameters", f"{number:,}") for name, number in sizes.items()]
    return rows


def _training_rows(facts: dict[str, Any]) -> list[tuple[str, Any]]:
    train = facts.get("train", {})
    # A card is published: the name of the data folder, not where its maker keeps it.
    data = Path(facts.get("data", {}).get("data", "")).name
    rows = [("data", f"`{data}`")] if data else []
    names = ("batch_size", "optimizer", "learning_rate", "label_smoothing", "seed")
    rows += [(name.replace("_", " "), train[name]) for name in names if name in train]
    if "precision" in facts:
        rows.append(("precision", facts["precision"]))
    return rows


def _evaluation_rows(facts: dict[str, Any]) -> list[tuple[str, Any]]:
    row = facts.get("evaluation") or {}
    rows = [(name, f"{row[name]:,}") for name in ("step", "pairs") if name in row]
    for split, scores in row.items():
        if isinstance(scores, dict):
            rows += [
                (f"{split} {name}", f"{value:,}" if name.endswith("examples") else f"{value:.4f}")
                for name, value in scores.items()
            ]
    return rows
