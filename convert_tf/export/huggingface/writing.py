"""Write a checkpoint as a folder in the layout of the Hugging Face hub.

sentence-transformers, SetFit, fastembed, transformers.js and programs built on them can open such
folders. A folder contains the weights twice. `model.safetensors` is for PyTorch, which runs the
folder's `modeling_convert.py` and can train the weights. `onnx/` is for programs that do not run
code from a folder.

Prompts select the kind of vectors. Without a prompt, a text gets the vector from
`SentenceEncoder.encode`. The prompts `context`, `response`, `similarity` and `reduced` select the
vectors of the same name. The first three kinds have fewer dimensions and are padded with zeros.
Search programs use the prompts `query` and `document`. Both select similarity vectors, because most
searches look for similar texts. Context and response vectors would find replies.
"""

import json
import os
import re
import shutil
from collections.abc import Sequence, Set
from pathlib import Path
from typing import Any
from unicodedata import normalize

import numpy as np
from safetensors.numpy import save

from convert_tf.checkpoints.kinds import SAFETENSORS_FILE, TOKENIZER_FILE
from convert_tf.checkpoints.limits import LIMIT_FILES, PREFIX_TOKENS, PREFIX_TOKENS_KEY
from convert_tf.encoding.backends.huggingface import WEIGHTS_KEY, swapped_mark, weights_checksum
from convert_tf.export.cards import encoder_card, notes_of, read_card, without_metadata
from convert_tf.export.huggingface.reading import TABLE_RANGE
from convert_tf.export.source import EncoderSource
from convert_tf.extras import needs
from convert_tf.numerics.byte_codes import pack_table
from convert_tf.numerics.vectors import SENTENCE_SCALE
from convert_tf.storage.folders import OutputFolder
from convert_tf.storage.json_text import json_file, written_json
from convert_tf.text.characters import MOST_MARKS, ranges_of
from convert_tf.text.subwords import WORD_START
from convert_tf.text.vocabulary import read_vocabulary

with needs("huggingface", "Writing a folder for Hugging Face programs"):
    from convert_tf.export.onnx.graph import BatchGraphBuilder
    from convert_tf.export.onnx.ops import as_array, with_one_unknown
    from convert_tf.export.onnx.writing import calibrated, opened_for_onnx

MODELING_FILE = "modeling_convert.py"
_TEMPLATE = Path(__file__).with_name("template")
_TEMPLATE_FILES = [path.relative_to(_TEMPLATE).as_posix() for path in _TEMPLATE.rglob("*.json")]
FILES = (
    MODELING_FILE,
    "config.json",
    SAFETENSORS_FILE,
    "README.md",
    "onnx/model.onnx",
    "onnx/model_quantized.onnx",
    *_TEMPLATE_FILES,
)
_HUB_METADATA = """\
library_name: sentence-transformers
pipeline_tag: sentence-similarity
language: en
tags: [sentence-transformers, feature-extraction, onnx, transformers.js, convert_tf]
"""
# The metadata at the start of a hub card, and one entry of it with its continuation lines.
_FRONT_MATTER = re.compile(r"---[ \t]*\n(?P<metadata>.*?)^---[ \t]*$", re.DOTALL | re.MULTILINE)
_ENTRY = re.compile(
    r"""^(["']?)(?P<key>\w[\w-]*)\1[ \t]*:.*\n(?:(?:[ \t\-\]}].*)?\n)*""", re.MULTILINE
)
# A user may type "[PAD]" or "<|context|>", which must be read as plain text. So the names of
# special tokens begin with a noncharacter, which Unicode reserves for use inside programs.
_MARK = "\ufdd0"
_UNKNOWN, _PADDING, _FIRST = f"{_MARK}unknown", f"{_MARK}padding", f"{_MARK}sentence"
# The kinds of vectors besides the default kind, and the tokens that select them.
_KIND_TOKENS = {kind: f"{_MARK}{kind}" for kind in ("context", "response", "similarity", "reduced")}
_SYNTAX = frozenset(r"\^$.*+?()[]{}|/-&~#")


def export_huggingface(
    checkpoint: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    max_tokens: int | None = None,
    notes: str = "",
    overwrite: bool = False,
) -> Path:
    """Write an encoder as a folder that Hugging Face programs can open.

    Args:
      checkpoint: a run or module of a dual encoder with a subword vocabulary, or a folder of this
        format, even if another program trained it further.
      output: the folder to write.
      max_tokens: maximum number of tokens per text. If None, 512, or the limit of `checkpoint` if
        it is a module or a folder.
      notes: Markdown to add to the model card. By default, the notes from the card of a module or a
        folder. They may contain a comment `<!-- hub metadata … -->` with metadata for the hub, in
        YAML.
      overwrite: whether to replace a folder that this function wrote.

    Returns:
      `output`.

    Raises:
      ValueError: if `output` exists, the checkpoint is damaged, reads earlier turns or has
        encodings that are longer than r, or an argument is out of range.

    Example:
      export_huggingface("runs/convert", "my-encoder")
    """
    target = OutputFolder(output, replaceable=FILES, overwrite=overwrite)
    with opened_for_onnx(checkpoint, max_tokens) as source:
        _write(source, target, checkpoint, notes)
    return Path(output)


def _write(
    source: EncoderSource, target: OutputFolder, checkpoint: str | os.PathLike[str], notes: str
) -> None:
    config = source.encoder.config
    if config.multi_context:
        raise ValueError(
            f"{os.fspath(checkpoint)!r} reads earlier turns, which programs for Hugging Face "
            "folders cannot pass. Export a single-context encoder, such as convert."
        )
    widest = max(config.encoding_dim, source.similarity_dim)
    if widest > config.reduced_dim:
        raise ValueError(
            f"{os.fspath(checkpoint)!r} has vectors of {widest} numbers, but a Hugging Face folder "
            f"cannot hold vectors longer than r, which has {config.reduced_dim}. Export an .onnx "
            "file or a module instead."
        )
    subwords = read_vocabulary(source.vocabulary)
    special = _special_tokens(len(subwords), has_similarity=source.similarity_map is not None)
    files = {name: json_file(_TEMPLATE / name) for name in _TEMPLATE_FILES}
    _fill_tokenizer(files["tokenizer.json"], subwords, special)
    for name, entry in LIMIT_FILES.items():
        files[name][entry] = source.max_tokens + PREFIX_TOKENS
    files["1_Pooling/config.json"]["word_embedding_dimension"] = config.reduced_dim
    settings = files["config_sentence_transformers.json"]
    # The order of prompts matters: sentence-transformers uses the first two names in the list, and
    # mteb uses the last name.
    settings["prompts"] = {n: token for n, token in settings["prompts"].items() if token in special}
    files["config.json"] = _model_config(source, special)
    notes, metadata = without_metadata(notes or _earlier_notes(checkpoint))
    prompts = {
        kind: [name for name, token in settings["prompts"].items() if token == kind_token]
        for kind, kind_token in _KIND_TOKENS.items()
    }
    card = encoder_card("huggingface", source, network_bits=32, notes=notes, prompts=prompts)
    with target.open() as folder:
        for name in ("1_Pooling", "onnx"):
            (folder / name).mkdir()
        for name, content in files.items():
            # Indentation would put each entry of the vocabulary on its own line.
            is_long = name == "tokenizer.json"
            text = json.dumps(content, ensure_ascii=False) if is_long else written_json(content)
            (folder / name).write_text(text, encoding="utf-8")
        (folder / "README.md").write_text(
            f"---\n{_HUB_METADATA}{metadata}---\n\n{card}", encoding="utf-8"
        )
        weights = save(torch_weights(source), {"format": "pt"})
        (folder / SAFETENSORS_FILE).write_bytes(weights)
        weights_of_graphs = weights_checksum(folder / SAFETENSORS_FILE)
        for name, calibrations in (("model", None), ("model_quantized", calibrated(source))):
            graph = BatchGraphBuilder(source, calibrations, kind_ids=_kind_ids(special)).build()
            graph.metadata_props.add(key=WEIGHTS_KEY, value=weights_of_graphs)
            (folder / "onnx" / f"{name}.onnx").write_bytes(graph.SerializeToString())
        shutil.copyfile(Path(__file__).with_name(MODELING_FILE), folder / MODELING_FILE)


def _earlier_notes(checkpoint: str | os.PathLike[str]) -> str:
    """Return the notes from the card of a module or a folder, with the metadata for the hub."""
    notes = notes_of(checkpoint)
    match = _FRONT_MATTER.match(read_card(checkpoint))
    replaced = {line.partition(":")[0] for line in _HUB_METADATA.splitlines()}
    metadata = _ENTRY.sub(
        lambda entry: "" if entry["key"] in replaced else entry[0],
        match["metadata"] if match else "",
    )
    return f"<!-- hub metadata\n{metadata}-->\n\n{notes}" if metadata.strip() else notes


def _special_tokens(vocab_size: int, *, has_similarity: bool) -> dict[str, int]:
    """Return the ids of the special tokens, which follow the vocabulary's ids."""
    tokens = [_UNKNOWN, _PADDING, _FIRST, *_KIND_TOKENS.values()]
    if not has_similarity:
        tokens.remove(_KIND_TOKENS["similarity"])
    return {token: vocab_size + i for i, token in enumerate(tokens)}


def _kind_ids(special: dict[str, int]) -> dict[str, int]:
    """Return the ids of the tokens that select a kind of vector, by kind. The ids ascend."""
    kinds = {k: special[token] for k, token in _KIND_TOKENS.items() if token in special}
    return {"sentence": special[_FIRST], **kinds}


def _fill_tokenizer(
    tokenizer: dict[str, Any], subwords: Sequence[str], special: dict[str, int]
) -> None:
    r"""Fill `tokenizer.json`: rebuild `SubwordTokenizer` from parts of the package `tokenizers`.

    WordPiece marks pieces inside a word, but the vocabulary marks pieces at the start of a word. An
    entry `﹏word` therefore becomes `word`, and an entry `piece` becomes `﹏piece`. The mark is a
    character that occurs nowhere else in an entry.

    Texts are folded first (`convert_tf.text.characters.fold`). The result differs from
    `SubwordTokenizer` in three ways. A character outside the vocabulary is unknown and ends its
    word. Words, and runs of punctuation and separators, are split after every 200 characters,
    because WordPiece takes cubic time for long words and refuses more than 2,000 characters. A
    capital sigma at the end of a word becomes σ instead of ς.
    """
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    tokenizer["added_tokens"] = [
        {"id": i, "content": token, **flags, "special": True} for token, i in special.items()
    ]
    letters = {entry.removeprefix(WORD_START) for entry in subwords}
    characters = sorted(c for c in letters if len(c) == 1)
    steps = [*_folding_steps({*characters}), tokenizer["normalizer"]]
    tokenizer["normalizer"] = {"type": "Sequence", "normalizers": steps}
    alphabet = "".join(f"\\{c}" if c in _SYNTAX else c for c in characters)
    unknown_characters = tokenizer["pre_tokenizer"]["pretokenizers"][2]
    unknown_characters["pattern"]["Regex"] = f"[^{alphabet}]"
    if _FIRST in special:
        tokenizer["post_processor"]["special_tokens"][_FIRST]["ids"] = [special[_FIRST]]
    vocabulary = {swapped_mark(subword): i for i, subword in enumerate(subwords)}
    tokenizer["model"]["vocab"] = {**vocabulary, **special}


def static_tokenizer(subwords: Sequence[str]) -> dict[str, Any]:
    """Return the content of `tokenizer.json` for static vectors.

    All unknown characters share one id, which follows the ids of the subwords.
    """
    tokenizer = json_file(_TEMPLATE / TOKENIZER_FILE)
    _fill_tokenizer(tokenizer, subwords, {_UNKNOWN: len(subwords)})
    return {**tokenizer, "post_processor": None}


def _folding_steps(alphabet: Set[str]) -> list[dict[str, Any]]:
    """Return the normalizers that fold texts, for a vocabulary with these characters.

    The package `tokenizers` applies NFKC to every character, so characters that `fold` keeps are
    first replaced by stand-ins. Each character in the vocabulary gets its own stand-in. All other
    characters share two stand-ins, because unknown characters have a single id. One of the two is
    for punctuation, which ends words.
    """
    marks = {chr(point) for points in ranges_of("marks") for point in points}
    kept = [chr(point) for points in ranges_of("kept") for point in points]
    known = [character for character in kept if character in alphabet]
    free = (chr(c) for c in range(0xE000, 0xF900) if chr(c) not in alphabet)
    stand_ins = dict(zip(known, free, strict=False))
    unknown = [character for character in kept if character not in alphabet]
    # The stand-in for unknown combining marks: a mark of Unicode 1.1 that NFKC does not change.
    unknown_mark = min(c for c in marks - alphabet if c > "\u2015" and normalize("NFKC", c) == c)
    classes = {
        unknown_mark: [c for c in unknown if c in marks],
        next(free): [c for c in unknown if c not in marks] + [*stand_ins.values()],
    }

    def replace(pattern: dict[str, str], content: str) -> dict[str, Any]:
        return {"type": "Replace", "pattern": pattern, "content": content}

    joiners, pictures, combining = map(_class, ("joiners", "pictures", "combining"))
    without_long_runs = replace({"Regex": f"(?<=[{combining}]{{{MOST_MARKS}}})[{combining}]+"}, "")
    return [
        replace({"Regex": f"[{_class('spaces')}]"}, " "),
        replace({"Regex": f"[{_class('unseen')}]"}, ""),
        replace({"Regex": f"(?<![{pictures}{joiners}])[{joiners}]+"}, ""),
        replace({"Regex": f"[{_class('hyphens')}]"}, "-"),
        without_long_runs,
        {"type": "NFC"},
        *(
            replace({"Regex": f"[{''.join(members)}]"}, stand_in)
            for stand_in, members in classes.items()
            if members
        ),
        *(replace({"String": character}, other) for character, other in stand_ins.items()),
        {"type": "NFKC"},
        *(replace({"String": other}, character) for character, other in stand_ins.items()),
        without_long_runs,
        replace({"Regex": " +"}, " "),
        {"type": "Strip", "strip_left": True, "strip_right": True},
    ]


def _class(table: str) -> str:
    """Return the characters of a table as a character class for a regular expression."""
    return "".join(f"{chr(codes.start)}-{chr(codes[-1])}" for codes in ranges_of(table))


def _model_config(source: EncoderSource, special: dict[str, int]) -> dict[str, Any]:
    """Return `config.json`."""
    config = source.encoder.config
    embedding = source.encoder.trunk.embedding
    ranges = embedding.quantizer and embedding.quantizer_weights
    return {
        **config.to_dict(),
        "model_type": "convert_tf",
        "architectures": ["ConvertModel"],
        "auto_map": {
            name: f"{Path(MODELING_FILE).stem}.{kind}"
            for name, kind in (("AutoConfig", "ConvertConfig"), ("AutoModel", "ConvertModel"))
        },
        "hidden_size": config.reduced_dim,
        "max_position_embeddings": source.max_tokens + PREFIX_TOKENS,
        PREFIX_TOKENS_KEY: PREFIX_TOKENS,
        "num_hidden_layers": len(config.max_relative_attention),
        "num_attention_heads": config.num_heads,
        "vocab_size": config.vocab_size + len(special),
        "pad_token_id": special[_PADDING],
        "unknown_id": special[_UNKNOWN],
        "kind_ids": _kind_ids(special),
        "similarity_dim": source.similarity_dim,
        "sentence_scale": SENTENCE_SCALE,
        TABLE_RANGE: ranges and [float(ranges[name]) for name in ("range_min", "range_max")],
    }


def torch_weights(source: EncoderSource) -> dict[str, np.ndarray]:
    """Return the weights as float32 arrays, by their names in `modeling_convert.py`.

    Matrices are transposed as in `nn.Linear`. The values in the subword table are rounded to 8
    bits, as in exported modules.
    """
    encoder = source.encoder
    embedding = encoder.trunk.embedding
    weights = {"tokens.weight": _table(embedding, encoder.config.vocab_size)}
    for i, table in enumerate(embedding.position_tables):
        weights[f"positions.{i}.weight"] = as_array(table)
    weights |= _layer("norm", embedding.norm.gamma, embedding.norm.beta)
    for i, block in enumerate(encoder.trunk.blocks):
        weights |= _block(f"blocks.{i}", block)
    weights["reduction.weight"] = as_array(encoder.reduction.query_key_kernel).T
    for name in ("context", "response"):
        side = getattr(encoder, f"{name}_side")
        for i, (hidden, norm) in enumerate(zip(side.hidden, side.norms, strict=True)):
            weights |= _layer(f"sides.{name}.hidden.{i}", hidden.kernel, hidden.bias)
            weights |= _layer(f"sides.{name}.norms.{i}", norm.gamma, norm.beta)
        weights |= _layer(f"sides.{name}.linear", side.linear.kernel, side.linear.bias)
    if source.similarity_map is not None:
        weights["similarity.weight"] = source.similarity_map.T
    return {name: np.ascontiguousarray(array, np.float32) for name, array in weights.items()}


def _table(embedding: Any, vocab_size: int) -> np.ndarray:
    table = with_one_unknown(as_array(embedding.table), vocab_size)
    if embedding.quantizer is None:
        return table
    ranges = embedding.quantizer_weights
    codes, offset, step = pack_table(table, ranges["range_min"], ranges["range_max"])
    return np.float32(offset) + np.float32(step) * codes


def _block(name: str, block: Any) -> dict[str, np.ndarray]:
    attention, layer = block.attention, block.feed_forward
    bias = np.zeros((attention.num_heads, 2 * attention.max_distance + 1), np.float32)
    if attention.use_relative_bias:
        bias = as_array(attention.relative_bias)
    return {
        f"{name}.query_key.weight": as_array(attention.query_key_kernel).T,
        f"{name}.relative_bias": bias,
        **_layer(f"{name}.attention_norm", block.attention_norm.gamma, block.attention_norm.beta),
        **_layer(f"{name}.hidden", layer.hidden_kernel, layer.hidden_bias),
        **_layer(f"{name}.output", layer.output_kernel, layer.output_bias),
        **_layer(
            f"{name}.output_norm", block.feed_forward_norm.gamma, block.feed_forward_norm.beta
        ),
    }


def _layer(name: str, weight: Any, bias: Any) -> dict[str, np.ndarray]:
    """Return the two arrays of a linear layer or a norm. Kernels are transposed for PyTorch."""
    return {f"{name}.weight": as_array(weight).T, f"{name}.bias": as_array(bias)}
