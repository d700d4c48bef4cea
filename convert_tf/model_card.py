"""The model card of an exported encoder, made from what its checkpoint and its files say."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from convert_tf.config import ModelConfig

CARD_FILE = "MODEL_CARD.md"


def encoder_card(
    config: ModelConfig,
    facts: dict[str, Any],
    *,
    max_tokens: int,
    network_bits: int,
    sizes: Mapping[str, int],
) -> str:
    """A model card, as Markdown.

    Args:
      config: the model.
      facts: what the checkpoint says of the training: `data`, `precision`, `parameters`, `train`,
        `evaluation`; lines without facts are left out.
      max_tokens: longest sequence, in subwords, that the module reads.
      network_bits: of the stored weights of the network.
      sizes: bytes of each file of the module, the card left out.

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
        "module.use_bfloat16(True)  # where the machine computes faster so",
        "```",
        "",
        "## Model",
        "",
        *card_table(_model_rows(config, facts, max_tokens)),
        "",
        "## Files",
        "",
        *card_table(_file_rows(config, network_bits, sizes)),
        "",
        "## Training",
        "",
        *card_table(_training_rows(config, facts)),
        "",
        "## Evaluation during training",
        "",
        *card_table(evaluation_rows(facts)),
        "",
        "## Limits",
        "",
        *_limits(config, facts, max_tokens),
        "",
    ])  # fmt: skip


def light_card(
    config: ModelConfig, facts: dict[str, Any], *, max_tokens: int, network_bits: int
) -> str:
    """The card that an `.onnx` file holds; arguments as of `encoder_card`."""
    computes_in = {8: "bytes, with float32 between the matrices", 32: "float32"}[network_bits]
    rows = [row for row in _model_rows(config, facts, max_tokens) if row[0] != "computes in"]
    return "\n".join([
        "# Sentence encoder",
        "",
        "Dual encoder of the ConveRT kind (arXiv 1911.03688), exported by convert_tf. Reading it "
        "needs `convert_tf`, `onnxruntime` and `numpy`:",
        "",
        "```python",
        "from convert_tf.client import SentenceEncoder",
        "encoder = SentenceEncoder(file)",
        'encoder.encode(["how do I reset my password?"])',
        "```",
        "",
        "## Model",
        "",
        *card_table([*rows, ("computes in", computes_in)]),
        "",
        "## Training",
        "",
        *card_table(_training_rows(config, facts)),
        "",
        "## Evaluation during training",
        "",
        *card_table(evaluation_rows(facts)),
        "",
        "## Limits",
        "",
        *_limits(config, facts, max_tokens),
        "",
    ])  # fmt: skip


def card_table(rows: list[tuple[str, Any]]) -> list[str]:
    """Names and values as lines of a Markdown table."""
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
        ("feed-forward layers", f"of width {config.feed_forward_dim}"),
        ("attention reaches", f"{_listed(config.max_relative_attention)} tokens, block by block"),
        ("`default`", f"{config.reduced_dim} numbers, not normalised"),
        ("`encode_context`, `encode_response`", f"{config.encoding_dim} numbers, L2-normalised"),
        ("longest text", f"{max_tokens} subwords are read, {config.max_tokens} in training"),
        ("computes in", "float32; in bfloat16 after `use_bfloat16(True)`"),
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


def _listed(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers))


def _file_rows(
    config: ModelConfig, network_bits: int, sizes: Mapping[str, int]
) -> list[tuple[str, Any]]:
    table_bits = min(config.embedding_bits, 16)
    return [
        ("subword table", f"{table_bits} bits"),
        ("network", f"{network_bits} bits"),
        *((f"`{name}`", f"{size:,} bytes") for name, size in sorted(sizes.items())),
        ("together", f"{sum(sizes.values()) / 1e6:.1f} MB"),
    ]


def _training_rows(config: ModelConfig, facts: dict[str, Any]) -> list[tuple[str, Any]]:
    train = facts.get("train", {})
    # A card is published: the name of the data folder, not where its maker keeps it.
    data = Path(facts.get("data", {}).get("data", "")).name
    rows = [("data", f"`{data}`")] if data else []
    names = ("steps", "batch_size", "optimizer", "learning_rate", "label_smoothing", "seed")
    rows += [(name.replace("_", " "), train[name]) for name in names if name in train]
    if "precision" in facts:
        rows.append(("precision", facts["precision"]))
    table = "with" if config.embedding_bits == 8 else "without"
    rows.append(("quantization", f"subword table trained {table} 8-bit rounding"))
    return rows


def _limits(config: ModelConfig, facts: dict[str, Any], max_tokens: int) -> list[str]:
    limits = [
        f"Of a longer text the first {max_tokens} subwords are read. Positions after "
        f"{config.max_tokens} were not trained.",
        f"Characters outside the vocabulary share {config.num_oov_buckets:,} rows: texts in "
        "scripts that the vocabulary does not hold are told apart by them alone. Letters are "
        "lower-cased.",
        "It is trained to tell which response follows a context; what it knows of languages and "
        "subjects is what the data holds.",
        "Weights are rounded in the files; the evaluation is of the weights before that.",
    ]
    if not config.multi_context:
        limits.append("It reads one text at a time: no earlier turns.")
    if not facts.get("evaluation"):
        limits.append("The checkpoint says of no evaluation.")
    return [f"- {limit}" for limit in limits]


def evaluation_rows(facts: dict[str, Any]) -> list[tuple[str, Any]]:
    """What the checkpoint says of its evaluation, as rows of `card_table`."""
    row = facts.get("evaluation") or {}
    rows = [(name, f"{row[name]:,}") for name in ("step", "pairs") if name in row]
    for split, scores in row.items():
        if isinstance(scores, dict):
            rows += [
                (f"{split} {name}", f"{value:,}" if name.endswith("examples") else f"{value:.4f}")
                for name, value in scores.items()
            ]
    return rows
