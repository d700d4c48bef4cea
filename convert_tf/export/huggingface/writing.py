"""A checkpoint as a folder in the layout of the Hugging Face hub.

sentence-transformers, SetFit, fastembed, transformers.js and programs built on them open it. It
holds the weights twice: `model.safetensors` for PyTorch, which runs the folder's
`modeling_convert.py` and can train the weights, and `onnx/` for programs that run no code of a
folder.

Prompts choose the vector. Without one, a text gets the vector of `SentenceEncoder.encode`. The
prompts `query` and `document` give the encodings of contexts and responses, and `similarity` the
vector for similarity. These are narrower and end with zeros.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from convert_tf.checkpoints.facts import read_tokens, training_facts
from convert_tf.config.model import ModelConfig
from convert_tf.export.cards import encoder_card
from convert_tf.export.huggingface.weights import torch_weights
from convert_tf.export.onnx.writing import OnnxSource, calibrated, load_for_onnx
from convert_tf.extras import needs
from convert_tf.models.distillation import SENTENCE_SCALE
from convert_tf.storage.folders import OutputFolder
from convert_tf.storage.json_text import written_json
from convert_tf.text.subwords import WORD_START
from convert_tf.text.vocabulary import read_vocabulary

MODELING_FILE = "modeling_convert.py"
FILES = (
    "config_sentence_transformers.json",
    "config.json",
    "modules.json",
    "sentence_bert_config.json",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "1_Pooling/config.json",
    "onnx/model.onnx",
    "onnx/model_quantized.onnx",
    "model.safetensors",
    MODELING_FILE,
    "README.md",
)
_HUB_METADATA = """\
---
library_name: sentence-transformers
pipeline_tag: sentence-similarity
language: en
tags: [sentence-transformers, feature-extraction, onnx, transformers.js, convert_tf]
---

"""
_UNKNOWN, _PADDING, _FIRST = "[UNK]", "[PAD]", "[CLS]"
# Kinds of vectors besides the default, and the tokens that select them.
_KIND_TOKENS = {
    "context": "<|context|>",
    "response": "<|response|>",
    "similarity": "<|similarity|>",
}
# Names of prompts in other programs: sentence-transformers uses the first two, mteb the last.
_PROMPTS = {
    "query": "context",
    "document": "response",
    "similarity": "similarity",
    "STS": "similarity",
}
# WordPiece searches the longest entry for each piece, so long words take cubic time.
_LONGEST_WORD = 200  # characters
_SYNTAX = frozenset(r"\^$.*+?()[]{}|/-&~#")


def export_huggingface(
    checkpoint: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    max_tokens: int | None = None,
    notes: str = "",
    overwrite: bool = False,
) -> Path:
    """Write an encoder as a folder that Hugging Face programs open.

    Args:
      checkpoint: a folder of a dual encoder with a subword vocabulary.
      output: the folder.
      max_tokens: longest text, in tokens, that the network reads. None for 512, or for what
        `checkpoint` reads if it is a module.
      notes: Markdown that joins the model card.
      overwrite: whether a folder that this function wrote is replaced.

    Returns:
      `output`.

    Raises:
      ImportError: a library of the extra `huggingface` is not installed.
      ValueError: `output` exists, the checkpoint is damaged, or an argument is out of range.

    Example:
      export_huggingface("runs/convert", "my-encoder")
    """
    with needs("huggingface", "Writing a folder for Hugging Face programs"):
        import onnx  # noqa: F401
        from safetensors.numpy import save
    max_tokens = read_tokens(training_facts(checkpoint), max_tokens)
    target = OutputFolder(output, replaceable=FILES, overwrite=overwrite)
    source = load_for_onnx(checkpoint)
    if source.encoder.config.multi_context:
        raise ValueError(
            f"{os.fspath(checkpoint)!r} reads earlier turns, which programs for Hugging Face "
            "folders cannot pass. Export an encoder of single texts, such as convert."
        )
    subwords = read_vocabulary(source.vocabulary)
    special = _special_tokens(len(subwords), has_similarity=source.similarity_map is not None)
    card = _HUB_METADATA + encoder_card(
        source.encoder.config,
        training_facts(checkpoint),
        max_tokens=max_tokens,
        network_bits=32,
        similarity_dim=source.similarity_dim,
        notes=notes,
        huggingface=True,
    )
    with target.open() as folder:
        small_files = _json_files(
            source.encoder.config,
            special,
            max_tokens=max_tokens,
            similarity_dim=source.similarity_dim,
        )
        for name, content in small_files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(written_json(content), encoding="utf-8")
        tokenizer = json.dumps(_tokenizer(subwords, special), ensure_ascii=False)
        (folder / "tokenizer.json").write_text(tokenizer, encoding="utf-8")
        (folder / "README.md").write_text(card, encoding="utf-8")
        (folder / "onnx").mkdir()
        for name, bits in (("model", 32), ("model_quantized", 8)):
            model = _graph(source, special, max_tokens=max_tokens, network_bits=bits)
            (folder / "onnx" / f"{name}.onnx").write_bytes(model)
        weights = torch_weights(source.encoder, source.similarity_map)
        (folder / "model.safetensors").write_bytes(save(weights, {"format": "pt"}))
        code = Path(__file__).with_name(MODELING_FILE).read_text(encoding="utf-8")
        (folder / MODELING_FILE).write_text(code, encoding="utf-8")
    return Path(output)


def _special_tokens(vocab_size: int, *, has_similarity: bool) -> dict[str, int]:
    """Ids of the tokens that stand in no text, after those of the vocabulary."""
    tokens = [_UNKNOWN, _PADDING, _FIRST, *_KIND_TOKENS.values()]
    if not has_similarity:
        tokens.remove(_KIND_TOKENS["similarity"])
    return {token: vocab_size + i for i, token in enumerate(tokens)}


def _kind_ids(special: dict[str, int]) -> dict[str, int]:
    """Ids of the tokens that ask for a kind of vector, by the kind; rising."""
    kinds = {k: special[token] for k, token in _KIND_TOKENS.items() if token in special}
    return {"sentence": special[_FIRST], **kinds}


def _graph(
    source: OnnxSource, special: dict[str, int], *, max_tokens: int, network_bits: int
) -> bytes:
    from convert_tf.export.onnx.batch_graph import BatchGraphBuilder

    return (
        BatchGraphBuilder(
            source.encoder,
            max_tokens=max_tokens,
            ranges=calibrated(source.encoder, max_tokens) if network_bits == 8 else None,
            similarity_map=source.similarity_map,
            kind_ids=_kind_ids(special),
        )
        .build()
        .SerializeToString()
    )


def _tokenizer(subwords: Sequence[str], special: dict[str, int]) -> dict[str, Any]:
    r"""`tokenizer.json`: the cuts of `SubwordTokenizer`, in parts that the package has.

    WordPiece marks the pieces inside a word; the vocabulary marks those that begin one. So an entry
    `﹏word` becomes `word`, and an entry `piece` becomes `﹏piece`: the mark is the one character
    that no entry has elsewhere.

    Three things differ. A character outside the vocabulary is `[UNK]` and ends its word. Words of
    more than 200 characters are cut. A capital sigma at the end of a word becomes σ, not ς.
    """
    letters = {entry.removeprefix(WORD_START) for entry in subwords}
    alphabet = "".join(
        f"\\{c}" if c in _SYNTAX else c for c in sorted(c for c in letters if len(c) == 1)
    )
    marks = r"\p{P}\p{Z}"
    splits = (
        (f"(?<=[^{marks}]) (?=[^{marks}])", "Removed"),  # a space between two words
        (f"[{marks}]+", "Isolated"),
        (f"[^{alphabet}]", "Isolated"),
        (f"[^{marks}]{{{_LONGEST_WORD}}}", "Isolated"),
    )
    vocabulary = {_entry(subword): i for i, subword in enumerate(subwords)}
    first, text = {"SpecialToken": {"id": _FIRST, "type_id": 0}}, {"id": "A", "type_id": 0}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": i,
                "content": token,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for token, i in special.items()
        ],
        "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {
                    "type": "Split",
                    "pattern": {"Regex": pattern},
                    "behavior": behavior,
                    "invert": False,
                }
                for pattern, behavior in splits
            ],
        },
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [first, {"Sequence": text}],
            "pair": [first, {"Sequence": text}, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {
                _FIRST: {"id": _FIRST, "ids": [special[_FIRST]], "tokens": [_FIRST]}
            },
        },
        "decoder": {"type": "WordPiece", "prefix": WORD_START, "cleanup": False},
        "model": {
            "type": "WordPiece",
            "unk_token": _UNKNOWN,
            "continuing_subword_prefix": WORD_START,
            "max_input_chars_per_word": 10 * _LONGEST_WORD,
            "vocab": {**vocabulary, **special},
        },
    }


def _entry(subword: str) -> str:
    if subword.startswith(WORD_START):
        return subword.removeprefix(WORD_START)
    return WORD_START + subword


def _json_files(
    config: ModelConfig, special: dict[str, int], *, max_tokens: int, similarity_dim: int
) -> dict[str, dict[str, Any] | list[Any]]:
    """The small files, by name."""
    names = {"unk_token": _UNKNOWN, "pad_token": _PADDING, "cls_token": _FIRST}
    package = "sentence_transformers.models"
    prompts = {
        prompt: _KIND_TOKENS[kind]
        for prompt, kind in _PROMPTS.items()
        if _KIND_TOKENS[kind] in special
    }
    return {
        "config.json": {
            **config.to_dict(),
            "model_type": "convert_tf",
            "architectures": ["ConvertModel"],
            "auto_map": {
                name: f"{Path(MODELING_FILE).stem}.{kind}"
                for name, kind in (("AutoConfig", "ConvertConfig"), ("AutoModel", "ConvertModel"))
            },
            "hidden_size": config.reduced_dim,
            "max_position_embeddings": max_tokens,
            "num_hidden_layers": len(config.max_relative_attention),
            "num_attention_heads": config.num_heads,
            "vocab_size": config.vocab_size + len(special),
            "pad_token_id": special[_PADDING],
            "unknown_id": special[_UNKNOWN],
            "kind_ids": _kind_ids(special),
            "similarity_dim": similarity_dim,
            "sentence_scale": SENTENCE_SCALE,
        },
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": max_tokens,
            "model_input_names": ["input_ids", "attention_mask"],
            "padding_side": "right",
            "truncation_side": "right",
            "clean_up_tokenization_spaces": False,
            **names,
        },
        "special_tokens_map.json": dict(names),
        "modules.json": [
            {"idx": 0, "name": "0", "path": "", "type": f"{package}.Transformer"},
            {"idx": 1, "name": "1", "path": "1_Pooling", "type": f"{package}.Pooling"},
        ],
        "1_Pooling/config.json": {
            "word_embedding_dimension": config.reduced_dim,
            "pooling_mode_cls_token": True,
            "pooling_mode_mean_tokens": False,
            "pooling_mode_max_tokens": False,
            "pooling_mode_mean_sqrt_len_tokens": False,
        },
        "sentence_bert_config.json": {"max_seq_length": max_tokens, "do_lower_case": False},
        "config_sentence_transformers.json": {
            "prompts": prompts,
            "default_prompt_name": None,
            "similarity_fn_name": "cosine",
        },
    }
