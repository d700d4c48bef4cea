"""Static vectors: a table with one vector per subword, fitted to an encoder.

The vector of a text is the mean of its subwords' vectors. The table is written as a folder in
model2vec's layout, which model2vec and sentence-transformers can open. The folder contains no
network, so encoding a text takes microseconds. Word order and context are lost.

The table is fitted by ridge regression on your texts. The mean of the rows for a text's subwords
should be close to the encoder's vector for this text. The row for a rare subword stays close to the
encoder's vector for the subword alone, times a/(a + p), where p is the probability of the subword
(smooth inverse frequency, Arora et al. 2017).
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from safetensors.numpy import save
from scipy.sparse import csr_matrix

from convert_tf.checkpoints.kinds import (
    CONFIG_FILE,
    SAFETENSORS_FILE,
    STATIC_TYPE,
    TOKENIZER_FILE,
    Kind,
    kind_of,
)
from convert_tf.checkpoints.released import as_onnx
from convert_tf.encoding.sentence_encoder import SentenceEncoder
from convert_tf.export.huggingface.writing import static_tokenizer
from convert_tf.export.onnx.writing import opened_for_onnx
from convert_tf.numerics.vectors import unit_rows
from convert_tf.storage.folders import OutputFolder
from convert_tf.storage.json_text import written_json
from convert_tf.text.plain_tokenizer import PlainTokenizer
from convert_tf.text.subwords import WORD_START
from convert_tf.text.vocabulary import read_vocabulary

FILES = (SAFETENSORS_FILE, TOKENIZER_FILE, CONFIG_FILE, "modules.json", "README.md")
LEAST_TEXTS = 100
DIM = 256  # maximum number of dimensions; with 512, vectors are hardly more accurate
_PENALTY = 0.1  # λ: the weight of the change of a row, relative to the error of one text
_STEPS = 40  # number of steps of conjugate gradients
_FREQUENCY = 1e-3  # a: a subword with this probability gets half the weight
_MODULES = [
    {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
    for i, (path, kind) in enumerate(((".", "StaticEmbedding"), ("1_Normalize", "Normalize")))
]
_CARD = """\
---
library_name: model2vec
tags: [model2vec, static-embeddings, sentence-transformers, convert_tf]
---

# Static vectors

One vector for each of {rows:,} subwords, fitted to the {kind} vectors of an encoder of convert_tf
on {texts:,} texts. A text's vector is the mean of those of its subwords, scaled to length 1. The
mean cosine to the encoder's vector is {cosine:.3f} on these texts. Word order is not read.

```python
from model2vec import StaticModel

vectors = StaticModel.from_pretrained("{name}").encode(["where is my card?"])
```
"""


def export_static(
    checkpoint: str | os.PathLike[str],
    output: str | os.PathLike[str],
    texts: Sequence[str],
    *,
    overwrite: bool = False,
) -> Path:
    """Fit a vector for each subword to an encoder, and write the vectors in model2vec's layout.

    The vectors are fitted to the encoder's similarity vectors. If the encoder has none, they are
    fitted to the vectors from `encode`.

    Args:
      checkpoint: a run, a module or a Hugging Face folder of an encoder with a subword vocabulary.
      output: the folder to write.
      texts: texts similar to those that will be encoded, the more the better. 30,000 texts contain
        most subwords. No labels are needed.
      overwrite: whether to replace a folder that this function wrote.

    Returns:
      `output`.

    Raises:
      ValueError: if `output` exists, the encoder cannot be read, or there are fewer than
        `LEAST_TEXTS` texts.

    Example:
      export_static("hub_modules/convert_small/3", "static", texts)
    """
    texts = [*dict.fromkeys(texts)]
    if len(texts) < LEAST_TEXTS:
        raise ValueError(
            f"Static vectors are fitted on at least {LEAST_TEXTS} different texts. Received: "
            f"{len(texts)}. Pass more texts. No labels are needed."
        )
    target = OutputFolder(output, replaceable=FILES, overwrite=overwrite)
    with opened_for_onnx(checkpoint, None) as source:
        subwords = read_vocabulary(source.vocabulary)
        kind = "similarity" if source.similarity_dim else "sentence"
        tokenizer = static_tokenizer(subwords)
    is_module = kind_of(checkpoint) is Kind.ENCODER_MODULE
    encoder = SentenceEncoder(as_onnx(Path(checkpoint)) if is_module else checkpoint)
    vectors = unit_rows(encoder.encode(texts, kind=kind))
    alone = [subword.removeprefix(WORD_START) or subword for subword in subwords]
    bags = subword_bags(texts, subwords)
    table = fit_table(bags, vectors, unit_rows(encoder.encode(alone, kind=kind)))
    basis = leading_directions(table, DIM)
    table = table @ basis
    cosine = float((unit_rows(bags @ table @ basis.T) * vectors).sum(axis=1).mean())
    # The row for unknown characters is zero, so it changes the norm of a mean but not its
    # direction.
    table = np.concatenate([table, np.zeros_like(table[:1])])
    card = _CARD.format(
        rows=len(subwords), kind=kind, texts=len(texts), cosine=cosine, name=Path(output).name
    )
    config = {
        "model_type": STATIC_TYPE, "architectures": ["StaticModel"], "normalize": True,
        "hidden_dim": table.shape[1], "embedding_dtype": str(table.dtype),
    }  # fmt: skip
    with target.open() as folder:
        (folder / SAFETENSORS_FILE).write_bytes(save({"embeddings": table}, {"format": "pt"}))
        (folder / CONFIG_FILE).write_text(written_json(config), encoding="utf-8")
        (folder / "modules.json").write_text(written_json(_MODULES), encoding="utf-8")
        content = json.dumps(tokenizer, ensure_ascii=False)
        (folder / TOKENIZER_FILE).write_text(content, encoding="utf-8")
        (folder / "README.md").write_text(card, encoding="utf-8")
    return Path(output)


def subword_bags(texts: Sequence[str], subwords: Sequence[str]) -> csr_matrix:
    """Return the share of each subword in each text. Unknown characters are ignored.

    Returns:
      The shares, float32 `[texts, subwords]`. Each row sums to 1, or to 0 if the text contains no
      subword of the vocabulary.
    """
    tokenizer = PlainTokenizer(list(subwords), num_oov_buckets=1)
    ids, splits = tokenizer.flat_ids(texts)
    rows = np.repeat(np.arange(len(texts)), np.diff(splits))
    is_known = ids < len(subwords)
    rows, ids = rows[is_known], ids[is_known]
    shares = (1 / np.maximum(np.bincount(rows, minlength=len(texts)), 1)).astype(np.float32)
    return csr_matrix((shares[rows], (rows, ids)), shape=(len(texts), len(subwords)))


def fit_table(bags: csr_matrix, vectors: np.ndarray, alone: np.ndarray) -> np.ndarray:
    """Fit the rows W of a table, so that the mean of a text's rows is close to the text's vector.

    |B W − Y|² + λ |W − c S|² is minimised by conjugate gradients. The rows of S are the encoder's
    vectors for single subwords, weighted by a/(a + p), and c is the factor for which B c S is
    closest to Y.

    Args:
      bags: B, float32 `[texts, subwords]`, from `subword_bags`.
      vectors: Y, the encoder's vectors for the texts, float32 `[texts, dim]` with length 1.
      alone: the encoder's vectors for single subwords, float32 `[subwords, dim]`.

    Returns:
      The table, float32 `[subwords, dim]`.

    Raises:
      ValueError: if no text has a known subword.
    """
    if not bags.nnz:
        raise ValueError("No text contains a subword of the vocabulary. Pass texts in English.")
    counts = np.asarray((bags > 0).sum(axis=0)).ravel() + 0.5
    weights = _FREQUENCY / (_FREQUENCY + counts / counts.sum())
    start = alone * weights[:, None].astype(np.float32)
    means = bags @ start
    start *= (means * vectors).sum() / (means * means).sum()
    table, residual = start.copy(), bags.T @ (vectors - bags @ start)
    direction, size = residual.copy(), (residual * residual).sum(axis=0)
    for _ in range(_STEPS):
        product = bags.T @ (bags @ direction) + _PENALTY * direction
        step = size / np.maximum((direction * product).sum(axis=0), np.finfo(np.float32).tiny)
        table += step * direction
        residual -= step * product
        before, size = size, (residual * residual).sum(axis=0)
        direction = residual + size / np.maximum(before, np.finfo(np.float32).tiny) * direction
    return table


def leading_directions(table: np.ndarray, dim: int) -> np.ndarray:
    """Return the orthogonal directions along which the rows of a table have the largest norms.

    Args:
      table: the table, float32 `[rows, width]`.
      dim: number of directions. If `width` is `dim` or less, the directions are the axes.

    Returns:
      The directions as columns of length 1, float32 `[width, min(dim, width)]`.
    """
    width = table.shape[1]
    if width <= dim:
        return np.eye(width, dtype=np.float32)
    wide = table.astype(np.float64)
    return np.linalg.eigh(wide.T @ wide)[1][:, : -dim - 1 : -1].astype(np.float32)
