"""The model card of an exported encoder, made from what its checkpoint and its files say."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from convert_tf.checkpoint import shown_name
from convert_tf.config import ModelConfig

CARD_FILE = "MODEL_CARD.md"


def encoder_card(
    config: ModelConfig,
    facts: dict[str, Any],
    *,
    max_tokens: int,
    network_bits: int,
    sizes: Mapping[str, int],
    notes: str = "",
) -> str:
    """A model card, as Markdown.

    Args:
      config: the model.
      facts: what the checkpoint says of the training: `data`, `precision`, `parameters`, `train`,
        `teacher`, `evaluation`; lines without facts are left out.
      max_tokens: longest sequence, in subwords, that the module reads.
      network_bits: of the stored weights of the network.
      sizes: bytes of each file of the module, the card left out.
      notes: Markdown of the maker's own: where the data are from, how good it is.

    Returns:
      The text of the card.

    Reference: arXiv 1810.03993 (model cards).
    """
    encode_context = 'encode_context"](tensor)["default"]'
    if config.multi_context:
        encode_context = 'encode_context"](context=tensor, extra_context=earlier)["default"]'
    return card_text(
        "Sentence encoder",
        "Dual encoder of the ConveRT kind (arXiv 1911.03688), exported by convert_tf. Loading it "
        "needs `tensorflow` and `tensorflow_text`:",
        example=[
            "import tensorflow_hub as hub, tensorflow_text",
            "module = hub.load(folder)",
            'module(["how do I reset my password?"])',
            f'module.signatures["{encode_context}',
            "module.use_bfloat16(True)  # where the machine computes faster so",
        ],
        tables={
            "Model": _model_rows(config, facts, max_tokens),
            "Files": [
                ("subword table", f"{min(config.embedding_bits, 16)} bits"),
                *file_rows(network_bits, sizes),
            ],
            "Training": _training_rows(config, facts),
            "Evaluation during training": evaluation_rows(facts),
        },
        limits=_limits(config, facts, max_tokens),
        notes=notes,
    )


def light_card(
    config: ModelConfig,
    facts: dict[str, Any],
    *,
    max_tokens: int,
    network_bits: int,
    notes: str = "",
) -> str:
    """The card that an `.onnx` file holds; arguments as of `encoder_card`."""
    computes_in = {8: "bytes, with float32 between the matrices", 32: "float32"}[network_bits]
    rows = [row for row in _model_rows(config, facts, max_tokens) if row[0] != "computes in"]
    return card_text(
        "Sentence encoder",
        "Dual encoder of the ConveRT kind (arXiv 1911.03688), exported by convert_tf. Reading it "
        "needs `convert_tf`, `onnxruntime` and `numpy`:",
        example=[
            "from convert_tf.client import SentenceEncoder",
            "encoder = SentenceEncoder(file)",
            'encoder.encode(["how do I reset my password?"])',
        ],
        tables={
            "Model": [*rows, ("computes in", computes_in)],
            "Training": _training_rows(config, facts),
            "Evaluation during training": evaluation_rows(facts),
        },
        limits=_limits(config, facts, max_tokens),
        notes=notes,
    )


def card_text(
    title: str,
    introduction: str,
    *,
    example: Sequence[str],
    tables: Mapping[str, list[tuple[str, Any]]],
    limits: Sequence[str],
    notes: str,
) -> str:
    """The Markdown of any card.

    Args:
      title: its heading.
      introduction: a paragraph.
      example: lines of Python.
      tables: rows of `card_table` by the heading of their section.
      limits: sentences.
      notes: Markdown that stands before the limits; `""` for none.
    """
    sections = [f"# {title}", introduction, "\n".join(["```python", *example, "```"])]
    for heading, rows in tables.items():
        sections += [f"## {heading}", "\n".join(card_table(rows))]
    if notes.strip():
        sections.append(notes.strip())
    sections += ["## Limits", "\n".join(f"- {limit}" for limit in limits)]
    return "\n\n".join(sections) + "\n"


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


def file_rows(network_bits: int, sizes: Mapping[str, int]) -> list[tuple[str, Any]]:
    """How the network is stored, and the bytes of each file and of all."""
    return [
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
    number = facts.get("data", {}).get("train_examples", 0)
    first = facts.get("data", {}).get("first_train_example", 0)
    if number or first:
        shown = f"the first {number:,}" if number else "all"
        behind = f" behind the first {first:,}" if first else ""
        rows.append(("training examples", shown + behind))
    if facts.get("data", {}).get("source_shares"):
        rows.append(("shares of sources", ", ".join(facts["data"]["source_shares"])))
    if "precision" in facts:
        rows.append(("precision", facts["precision"]))
    if "initial_weights" in facts:
        rows.append(("initial weights", f"those of `{shown_name(facts['initial_weights'])}`"))
    if train.get("distillation"):
        rows.append(("distilled from", f"`{Path(facts.get('teacher', '')).name}`"))
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
    return limits


def evaluation_rows(facts: dict[str, Any]) -> list[tuple[str, Any]]:
    """What the checkpoint says of its evaluation, as rows of `card_table`."""
    row = facts.get("evaluation") or {}
    rows = [(name, f"{row[name]:,}") for name in ("step", "pairs") if name in row]
    if "cpu_seconds" in row:
        rows.append(("CPU hours", f"{row['cpu_seconds'] / 3600:.2f}"))
    for split, scores in row.items():
        if isinstance(scores, dict):
            rows += [
                (f"{split} {name}", f"{value:,}" if name.endswith("examples") else f"{value:.4f}")
                for name, value in scores.items()
            ]
    return rows
