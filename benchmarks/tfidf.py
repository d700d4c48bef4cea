"""Measure R100@1 of TF-IDF over subwords, as a baseline for trained encoders.

```
python benchmarks/tfidf.py --data data/ --vocab vocab.txt --max_examples 3100
```

Document frequencies are counted in the train split. The examples are from the test split, in the
same order and blocks as in `convert-tf evaluate`.
"""

import numpy as np
import tensorflow as tf
from absl import app, flags

from convert_tf import metrics
from convert_tf.data.records import read_turns
from convert_tf.text.tokenizer import Tokenizer, load_tokenizer

_DATA = flags.DEFINE_string("data", None, "Folder of records.", required=True)
_VOCAB = flags.DEFINE_string("vocab", None, "Vocabulary file.", required=True)
_SPLIT = flags.DEFINE_string("split", "test", "Split of records to rank.")
_MAX_EXAMPLES = flags.DEFINE_integer("max_examples", None, "Maximum number to rank.")


def token_counts(tokenizer: Tokenizer, texts: list[bytes]) -> np.ndarray:
    """Return how often each token occurs in each text: float32 `[texts, ids]`."""
    token_ids = tokenizer.token_ids(tf.constant(texts))
    counts = np.zeros((len(texts), tokenizer.num_ids), np.float32)
    np.add.at(counts, (token_ids.value_rowids().numpy(), token_ids.flat_values.numpy()), 1.0)
    return counts


def inverse_document_frequencies(tokenizer: Tokenizer, texts: list[bytes]) -> np.ndarray:
    """Return ln((N + 1) / (n + 1)) for each token that is in n of N texts: float32 `[ids]`."""
    found = np.zeros(tokenizer.num_ids)
    for start in range(0, len(texts), 1000):
        found += (token_counts(tokenizer, texts[start : start + 1000]) > 0).sum(axis=0)
    return np.log((len(texts) + 1) / (found + 1)).astype(np.float32)


def _pairs(split: str, max_examples: int | None = None) -> tuple[list[str], list[str]]:
    examples = [*read_turns(_DATA.value, split, max_examples=max_examples)]
    return [example.turns[-1] for example in examples], [example.response for example in examples]


def main(argv: list[str]) -> None:
    del argv
    tokenizer = load_tokenizer(_VOCAB.value)
    train_contexts, train_responses = _pairs("train")
    weights = inverse_document_frequencies(tokenizer, train_contexts + train_responses)
    contexts, responses = _pairs(_SPLIT.value, max_examples=_MAX_EXAMPLES.value)
    size = metrics.BLOCK_SIZE
    ranks = []
    for start in range(0, len(contexts) - size + 1, size):
        block = [
            token_counts(tokenizer, texts[start : start + size]) * weights
            for texts in (contexts, responses)
        ]
        block = [v / np.maximum(np.linalg.norm(v, axis=1, keepdims=True), 1e-9) for v in block]
        ranks.append(metrics.block_ranks(*block))
    print(metrics.ranking_metrics(np.concatenate(ranks), ks=(1, 3, 10)))


if __name__ == "__main__":
    app.run(main)
