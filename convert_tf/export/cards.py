"""Write model cards: the template `card.md`, filled with facts about a checkpoint and its files.

Reference: arXiv 1810.03993 (model cards).
"""

import os
import re
import string
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from convert_tf.checkpoints.facts import data_facts, shown_name
from convert_tf.checkpoints.kinds import HUB_CARD_FILE, CheckpointError, Kind, kind_of
from convert_tf.config.ranker import RankerConfig
from convert_tf.encoding.signatures import SHORTER_DIMS, SIGNATURES
from convert_tf.export.source import EncoderSource

CARD_FILE = "MODEL_CARD.md"

_TEMPLATE = Path(__file__).with_name("card.md")
_TABLE = "| | |\n|---|---|"
# The comments around the author's notes in a card. Readers of the card do not see them.
_START, _END = "<!-- notes -->", "<!-- end of notes -->"
_LIMITS = "\n## Limits\n"
# Finds the notes in a card from an earlier version, which has no such comments. They come after the
# section on training and, if there is one, the section on evaluation, and before the section on
# limits.
_NOTES = re.compile(
    r"\n## Training\n.*?\n(?:## Evaluation during training\n.*?\n)?"
    r"(?!## Evaluation during training\n)(?=<!-- |## )(?P<notes>.*?)\n## Limits\n",
    re.DOTALL,
)
# Finds metadata for the Hugging Face hub in notes. The metadata are in a comment, so readers of the
# card do not see them.
_METADATA = re.compile(r"<!-- hub metadata\n(?P<metadata>.*?)\n-->\n*", re.DOTALL)


def encoder_card(
    form: str,
    source: EncoderSource,
    *,
    network_bits: int,
    sizes: Mapping[str, int] = MappingProxyType({}),
    notes: str = "",
    prompts: Mapping[str, Sequence[str]] | None = None,
) -> str:
    """Return the card of an encoder, as Markdown.

    Args:
      form: the form in which the encoder is stored: `"module"`, `"onnx"` or `"huggingface"`.
      source: the encoder. The card uses the facts `data`, `precision`, `parameters`, `train`,
        `teacher` and `evaluation` about its training. Lines whose facts are missing are omitted.
      network_bits: number of bits per stored weight of the network.
      sizes: size in bytes of each file in a module, except for the card.
      notes: Markdown by the author, such as data sources and accuracy.
      prompts: the names of a Hugging Face folder's prompts, by the kind of vectors they select.

    Returns:
      The text of the card.
    """
    config, training = source.encoder.config, source.training
    facts = _training_facts(training)
    if form == "huggingface":  # names of the author's folders mean nothing to users of the hub
        facts |= {"data": None, "source_shares": None}
    shown = {
        "encoder": True,
        form: True,
        "rounded": form != "huggingface",
        "exact": network_bits != 8,
        "in_bytes": network_bits == 8,
        "one_text": not config.multi_context,
        "two_texts": config.multi_context,
        "similar": bool(source.similarity_dim),
        "not_evaluated": not training.get("evaluation") and not notes,
        "has_notes": bool(notes),
    }
    sizes_of_parts = training.get("parameters") or {}
    return _filled(
        shown,
        **vars(config),
        blocks=len(config.max_relative_attention),
        reaches=", ".join(map(str, config.max_relative_attention)),
        signatures=_signature_rows(source, prompts),
        read_tokens=source.max_tokens,
        parameters=_rows((f"{name} parameters", f"{n:,}") for name, n in sizes_of_parts.items()),
        table_bits=min(config.embedding_bits, 16),
        quantization="with" if config.embedding_bits == 8 else "without",
        after_evaluation="; the evaluation during training is of the weights before that"
        if training.get("evaluation")
        else "",
        notes=notes,
        **_file_facts(sizes, network_bits),
        **facts,
    )


def read_card(folder: str | os.PathLike) -> str:
    """Return the card of a module or a Hugging Face folder; `""` if there is none.

    In the card of a Hugging Face folder, which anyone may have written, bytes that are not UTF-8
    become U+FFFD.

    Raises:
      CheckpointError: if the card of a module is not UTF-8.
    """
    is_hub_folder = kind_of(folder) is Kind.HUGGING_FACE_ENCODER
    path = Path(folder) / (HUB_CARD_FILE if is_hub_folder else CARD_FILE)
    errors = "replace" if is_hub_folder else "strict"
    try:
        return path.read_text(encoding="utf-8-sig", errors=errors) if path.is_file() else ""
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{str(path)!r} is not UTF-8 ({error}). Save it as UTF-8.") from error


def notes_of(folder: str | os.PathLike) -> str:
    """Return the author's notes from the card of a module or a Hugging Face folder.

    These include what someone has added to the card between the notes and the section on limits.
    The result is `""` if the card has no notes.

    Raises:
      CheckpointError: if the card is not UTF-8.
    """
    card = read_card(folder)
    if _START in card:
        marked = card.split(_START, 1)[1]
        end = marked.rfind(_END)  # −1 if someone has removed this comment
        limits = marked.rfind(_LIMITS) if end < 0 else marked.find(_LIMITS, end)
        notes = marked[: limits if limits >= 0 else len(marked)]
        return re.sub(rf"\n*{_END}\n*", "\n\n", notes).strip()
    match = _NOTES.search(card)
    return match["notes"].strip() if match else ""


def without_metadata(notes: str) -> tuple[str, str]:
    """Split notes into the text without the comment `<!-- hub metadata … -->`, and its YAML."""
    match = _METADATA.search(notes)
    return (_METADATA.sub("", notes), f"{match['metadata']}\n") if match else (notes, "")


def ranker_card(
    config: RankerConfig,
    training: dict[str, Any],
    *,
    context_tokens: int,
    candidate_tokens: int,
    network_bits: int,
    sizes: Mapping[str, int],
    notes: str = "",
) -> str:
    """Return the card for a ranker's module, as Markdown.

    Args:
      config: the ranker's configuration.
      training: the facts about the ranker's training.
      context_tokens, candidate_tokens: maximum number of tokens of a context and of a candidate.
      network_bits, sizes, notes: as in `encoder_card`.
    """
    head = config.head
    shown = {
        "module": True,
        "ranker": True,
        "keeps_candidates": head.head != "cross",
        "poly": head.head == "poly",
        "two_trunks": head.separate_trunks,
        "not_evaluated": not training.get("evaluation") and not notes,
        "has_notes": bool(notes),
    }
    return _filled(
        shown,
        **vars(head),
        kind=f"{head.head.capitalize()}-encoder",
        trunk=config.trunk,
        tokenizer=config.tokenizer,
        vocab_size=config.model.vocab_size,
        context_tokens=context_tokens,
        candidate_tokens=candidate_tokens,
        notes=notes,
        dev_data=_shown(training.get("dev_data")),
        started_from=_shown(training.get("init_from")),
        **_file_facts(sizes, network_bits),
        **_training_facts(training),
    )


def _filled(shown: Mapping[str, bool], *, notes: str, **facts: Any) -> str:
    """Return the filled template `card.md`, without the lines whose facts are missing or None.

    A line may begin with names in braces, such as `{module}`. The line is then omitted unless
    `shown` is true for all of these names.
    """
    facts |= {name: "" for name, is_shown in shown.items() if is_shown}
    before, after = _TEMPLATE.read_text(encoding="utf-8").split("{notes}\n")
    marked = "\n\n".join(filter(None, [_START, notes.strip(), _END]))
    parts = [_without_unknown(before, facts), marked, _without_unknown(after, facts)]
    return "\n\n".join(filter(None, parts)) + "\n"


def _without_unknown(template: str, facts: Mapping[str, Any]) -> str:
    lines = []
    for line in template.splitlines():
        names = [name for _, name, _, _ in string.Formatter().parse(line) if name]
        if all(facts.get(name) is not None for name in names):
            lines.append(line.format_map(facts))
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()
    # A card inside an `.onnx` file has no table of files, and some checkpoints have no evaluation.
    empty = rf"(\A|\n\n)## (Files|Evaluation during training)\n\n{re.escape(_TABLE)}(?=\n\n|\Z)"
    text = re.sub(empty, "", text)
    return re.sub(rf"{re.escape(_TABLE)}(?=\n\n|\Z)", "The checkpoint does not record this.", text)


def _rows(rows: Iterable[tuple[str, Any]]) -> str | None:
    return "\n".join(f"| {name} | {value} |" for name, value in rows) or None


def _shown(path: str | None) -> str | None:
    return shown_name(path) if path else None


def _signature_rows(
    source: EncoderSource, prompts: Mapping[str, Sequence[str]] | None
) -> str | None:
    config = source.encoder.config
    dims = {"reduced_dim": config.reduced_dim, "similarity_dim": source.similarity_dim}
    dims["encoding_dim"] = config.encoding_dim
    names: dict[str, str] = {}
    for signature in SIGNATURES.values():
        if dim := dims[signature.dim]:
            vectors = f"{dim} {signature.vectors}"
            if signature.kind == "sentence" and source.similarity_dim:
                vectors += ", leaning towards meaning"
            shorter = [str(first) for first in SHORTER_DIMS if first < dim]
            if signature.kind == "similarity" and shorter:
                vectors += f"; the first {' or '.join(shorter)} also work as a shorter vector"
            name = f"`{signature.name}`"
            if prompts is not None:
                asked = " or ".join(f"`{prompt}`" for prompt in prompts.get(signature.kind, ()))
                name = f"prompt {asked}" if asked else "no prompt"
                if dim < config.reduced_dim:
                    vectors += f"; zeros follow, up to {config.reduced_dim}"
            names[vectors] = ", ".join([*filter(None, [names.get(vectors)]), name])
    return _rows((name, vectors) for vectors, name in names.items())


def _file_facts(sizes: Mapping[str, int], network_bits: int) -> dict[str, Any]:
    """Return facts about how the network is stored, and about the sizes of all files."""
    return {
        "network_bits": network_bits,
        "files": _rows((f"`{name}`", f"{size:,} bytes") for name, size in sorted(sizes.items())),
        "total": f"{sum(sizes.values()) / 1e6:.1f}",
    }


def _training_facts(training: dict[str, Any]) -> dict[str, Any]:
    """Return the facts about training that the cards of encoders and rankers have in common.

    Cards are published, so they contain the names of folders but not their paths.
    """
    options, data = training.get("train", {}), data_facts(training)
    path = training.get("data") if isinstance(training.get("data"), str) else data.get("data")
    number, first = data.get("train_examples", 0), data.get("first_train_example", 0)
    examples = None
    if number or first:
        examples = f"the first {number:,}" if number else "all"
        examples += f" after the first {first:,}" if first else ""
    teacher = training.get("teacher")
    ranking_teacher = None
    if training.get("ranking_teacher"):
        ranking_teacher = f"`{shown_name(training['ranking_teacher'])}`"
        if sources := training.get("ranking_joined_sources"):
            ranking_teacher += f", joined in {', '.join(sources)}, elsewhere the first alone"
    fitted = training.get("similarity")
    names = ("steps", "batch_size", "optimizer", "learning_rate", "label_smoothing", "seed")
    return {
        **{name: options.get(name) for name in names},
        "data": _shown(path),
        "training_examples": examples,
        "source_shares": ", ".join(data.get("source_shares") or ()) or None,
        "precision": training.get("precision"),
        "initial_weights": _shown(training.get("initial_weights")),
        "teacher": shown_name(teacher) if teacher and options.get("distillation") else None,
        "ranking_teacher": ranking_teacher,
        "similarity_teacher": fitted and f"`{fitted['teacher']}`, from {fitted['texts']:,} texts",
        "opposites": _opposites_text(training.get("opposites")),
        "evaluation": _rows(_evaluation_rows(training.get("evaluation") or {})),
    }


def _opposites_text(facts: Mapping[str, Any] | None) -> str | None:
    """Describe how a similarity map was trained on opposites, the latest training first."""
    if not facts:
        return None
    text = f"{facts['triplets']:,} triplets and {facts['texts']:,} texts"
    if facts.get("teacher"):
        text += f", some with vectors of `{shown_name(facts['teacher'])}`"
    earlier = _opposites_text(facts.get("earlier"))
    return f"{text}; before that, {earlier}" if earlier else text


def _evaluation_rows(row: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    for name in ("step", "pairs"):
        if name in row:
            yield name, f"{row[name]:,}"
    if "cpu_seconds" in row:
        yield "CPU hours", f"{row['cpu_seconds'] / 3600:.2f}"
    for split, scores in row.items():
        for name, value in scores.items() if isinstance(scores, dict) else ():
            shown = f"{value:,}" if name.endswith("examples") else f"{value:.4f}"
            yield f"{split} {name}", shown
