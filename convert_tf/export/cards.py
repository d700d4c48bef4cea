"""Model cards: what an exported model is, made from what its checkpoint and its files say.

Reference: arXiv 1810.03993 (model cards).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from convert_tf.checkpoints.facts import data_facts
from convert_tf.checkpoints.folder import shown_name
from convert_tf.config.model import ModelConfig
from convert_tf.config.ranker import RankerConfig

CARD_FILE = "MODEL_CARD.md"


# Said of what TensorFlow loads; an `.onnx` file can do no such thing.
_TRUST = (
    "A module is a program: one that you load can read and write your files. Load only modules of "
    "people whom you trust."
)


def encoder_card(
    config: ModelConfig,
    facts: dict[str, Any],
    *,
    max_tokens: int,
    network_bits: int,
    sizes: Mapping[str, int],
    similarity_dim: int = 0,
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
      similarity_dim: numbers of a vector for similarity; 0 for a model without them.
      notes: Markdown of the maker's own: where the data are from, how good it is.

    Returns:
      The text of the card.
    """
    encode_context = 'encode_context"](tensor)["default"]'
    if config.multi_context:
        encode_context = 'encode_context"](context=tensor, extra_context=earlier)["default"]'
    return _card_text(
        "Sentence encoder",
        "Dual encoder of the ConveRT kind (arXiv 1911.03688), exported by convert_tf. Loading it "
        "needs `tensorflow`, 2.6 or later, and `tensorflow_text`:",
        example=[
            "import tensorflow_hub as hub, tensorflow_text",
            "module = hub.load(folder)",
            'module(["how do I reset my password?"])',
            f'module.signatures["{encode_context}',
            "module.use_bfloat16(True)  # where the machine computes faster so",
        ],
        tables={
            "Model": _model_rows(config, facts, max_tokens, similarity_dim),
            "Files": [
                ("subword table", f"{min(config.embedding_bits, 16)} bits"),
                *_file_rows(network_bits, sizes),
            ],
            "Training": _training_rows(config, facts),
            "Evaluation during training": _evaluation_rows(facts),
        },
        limits=[*_limits(config, facts, max_tokens), _TRUST],
        notes=notes,
    )


def light_card(
    config: ModelConfig,
    facts: dict[str, Any],
    *,
    max_tokens: int,
    network_bits: int,
    similarity_dim: int = 0,
    notes: str = "",
) -> str:
    """The card that an `.onnx` file holds; arguments as of `encoder_card`."""
    computes_in = {8: "bytes, with float32 between the matrices", 32: "float32"}[network_bits]
    rows = _model_rows(config, facts, max_tokens, similarity_dim)
    rows = [row for row in rows if row[0] != "computes in"]
    return _card_text(
        "Sentence encoder",
        "Dual encoder of the ConveRT kind (arXiv 1911.03688), exported by convert_tf. Reading it "
        "needs `convert_tf`, `onnxruntime` and `numpy`:",
        example=[
            "from convert_tf import SentenceEncoder",
            "encoder = SentenceEncoder(file)",
            'encoder.encode(["how do I reset my password?"])',
        ],
        tables={
            "Model": [*rows, ("computes in", computes_in)],
            "Training": _training_rows(config, facts),
            "Evaluation during training": _evaluation_rows(facts),
        },
        limits=_limits(config, facts, max_tokens),
        notes=notes,
    )


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
    """The card of a ranker's module; arguments as of `encoder_card`.

    Args:
      context_tokens, candidate_tokens: longest texts that the module reads.
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
    return _card_text(
        "Ranker of responses",
        f"{kinds[head.head]} (arXiv 1905.01969) on a trunk of the kind `{config.trunk}`, exported "
        "by convert_tf. Loading it needs `tensorflow`, 2.6 or later, and `tensorflow_text`:",
        example=example,
        tables={
            "Model": [
                ("tokenizer", config.tokenizer),
                ("vocabulary", f"{config.model.vocab_size:,} entries"),
                *_head_rows(config),
                ("contexts", f"the last {context_tokens} tokens are read"),
                ("candidates", f"the first {candidate_tokens} tokens are read"),
            ],
            "Files": _file_rows(network_bits, sizes),
            "Training": _ranker_training_rows(facts),
            "Evaluation during training": _evaluation_rows(facts),
        },
        limits=[
            "A context is one text: all turns joined with spaces, the newest last. Where it is "
            "longer than is read, the oldest tokens are left out.",
            "Scores compare the candidates of one context; they are no probabilities.",
            "Weights are rounded in the files.",
            _TRUST,
        ],
        notes=notes,
    )


def _card_text(
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
      tables: rows of `_card_table` by the heading of their section.
      limits: sentences.
      notes: Markdown that stands before the limits; `""` for none.
    """
    sections = [f"# {title}", introduction, "\n".join(["```python", *example, "```"])]
    for heading, rows in tables.items():
        sections += [f"## {heading}", "\n".join(_card_table(rows))]
    if notes.strip():
        sections.append(notes.strip())
    sections += ["## Limits", "\n".join(f"- {limit}" for limit in limits)]
    return "\n\n".join(sections) + "\n"


def _card_table(rows: list[tuple[str, Any]]) -> list[str]:
    """Names and values as lines of a Markdown table."""
    if not rows:
        return ["The checkpoint says nothing of it."]
    return ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)]


def _model_rows(
    config: ModelConfig, facts: dict[str, Any], max_tokens: int, similarity_dim: int
) -> list[tuple[str, Any]]:
    sizes = facts.get("parameters")
    sizes = sizes if isinstance(sizes, dict) else {}  # of pre-training a number, of all
    rows: list[tuple[str, Any]] = [
        ("tokenizer", config.tokenizer),
        ("vocabulary", f"{config.vocab_size:,} entries, {config.num_oov_buckets:,} hash buckets"),
        ("blocks", f"{len(config.max_relative_attention)} of width {config.embedding_dim}"),
        ("feed-forward layers", f"of width {config.feed_forward_dim}"),
        ("attention reaches", f"{_listed(config.max_relative_attention)} tokens, block by block"),
        (
            "`default`",
            f"{config.reduced_dim} numbers, not normalised"
            + (", leaning towards meaning" if similarity_dim else ""),
        ),
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
    if similarity_dim:
        meaning = "numbers, L2-normalised, of which the first ones are a shorter vector"
        rows.append(("`encode_similarity`", f"{similarity_dim} {meaning}"))
    rows += [(f"{name} parameters", f"{number:,}") for name, number in sizes.items()]
    return rows


def _head_rows(config: RankerConfig) -> list[tuple[str, Any]]:
    head = config.head
    rows: list[tuple[str, Any]] = [("head", head.head), ("reduction", head.reduction)]
    if head.head == "poly":
        rows.append(("context vectors", f"{head.poly_codes}, {head.poly_variant}"))
    if head.separate_trunks:
        rows.append(("trunks", "one for contexts, one for candidates"))
    return rows


def _listed(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers))


def _file_rows(network_bits: int, sizes: Mapping[str, int]) -> list[tuple[str, Any]]:
    """How the network is stored, and the bytes of each file and of all."""
    return [
        ("network", f"{network_bits} bits"),
        *((f"`{name}`", f"{size:,} bytes") for name, size in sorted(sizes.items())),
        ("together", f"{sum(sizes.values()) / 1e6:.1f} MB"),
    ]


def _training_rows(config: ModelConfig, facts: dict[str, Any]) -> list[tuple[str, Any]]:
    train = facts.get("train", {})
    # A card is published: the name of the data folder, not where its maker keeps it.
    data = data_facts(facts)
    folder = Path(data.get("data", "")).name
    rows = [("data", f"`{folder}`")] if folder else []
    rows += _option_rows(train, "label_smoothing", "seed")
    number, first = data.get("train_examples", 0), data.get("first_train_example", 0)
    if number or first:
        shown = f"the first {number:,}" if number else "all"
        behind = f" behind the first {first:,}" if first else ""
        rows.append(("training examples", shown + behind))
    if data.get("source_shares"):
        rows.append(("shares of sources", ", ".join(data["source_shares"])))
    if "precision" in facts:
        rows.append(("precision", facts["precision"]))
    if "initial_weights" in facts:
        rows.append(("initial weights", f"those of `{shown_name(facts['initial_weights'])}`"))
    if train.get("distillation") and facts.get("teacher"):
        rows.append(("distilled from", f"`{Path(facts['teacher']).name}`"))
    if facts.get("ranking_teacher"):
        shown = f"`{Path(facts['ranking_teacher']).name}`"
        if sources := facts.get("ranking_joined_sources"):
            shown += f", joined in {', '.join(sources)}, elsewhere the first alone"
        rows.append(("ranking learnt from", shown))
    if fitted := facts.get("similarity"):
        shown = f"`{fitted['teacher']}`, from {fitted['texts']:,} texts"
        rows.append(("vectors for similarity fitted to", shown))
    table = "with" if config.embedding_bits == 8 else "without"
    rows.append(("quantization", f"subword table trained {table} 8-bit rounding"))
    return rows


def _ranker_training_rows(facts: dict[str, Any]) -> list[tuple[str, Any]]:
    # A card is published: the names of files, not where its maker keeps them.
    names = {"data": "data", "dev_data": "dev data", "init_from": "started from"}
    rows: list[tuple[str, Any]] = [
        (name, f"`{shown_name(facts[key])}`") for key, name in names.items() if facts.get(key)
    ]
    rows += _option_rows(facts.get("train", {}), "seed")
    if "precision" in facts:
        rows.append(("precision", facts["precision"]))
    return rows


def _option_rows(train: dict[str, Any], *further: str) -> list[tuple[str, Any]]:
    names = ("steps", "batch_size", "optimizer", "learning_rate", *further)
    return [(name.replace("_", " "), train[name]) for name in names if name in train]


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


def _evaluation_rows(facts: dict[str, Any]) -> list[tuple[str, Any]]:
    """What the checkpoint says of its evaluation, as rows of `_card_table`."""
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
