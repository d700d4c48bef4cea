"""Measure texts per second of the tokenizers with and without TensorFlow.

```
python benchmarks/tokenizer.py --data data/ --vocab vocab.txt
```

Both tokenize the same batches in turns. The script also counts the texts for which they give
different ids; there should be none. The vocabulary must be of subwords, because the tokenizer
without TensorFlow reads no other kind.
"""

import time

import numpy as np
import tensorflow as tf
from absl import app, flags

from convert_tf.data.records import read_turns
from convert_tf.text.plain_tokenizer import PlainTokenizer
from convert_tf.text.tokenizer import load_tokenizer
from convert_tf.text.vocabulary import read_vocabulary

_DATA = flags.DEFINE_string("data", None, "Folder of records.", required=True)
_VOCAB = flags.DEFINE_string("vocab", None, "Vocabulary file.", required=True)
_BATCH = flags.DEFINE_integer("batch", 1000, "Texts per batch.")
_BATCHES = flags.DEFINE_integer("batches", 20, "Number of batches.")


def main(argv: list[str]) -> None:
    del argv
    tokenizer = load_tokenizer(_VOCAB.value)
    plain = PlainTokenizer(read_vocabulary(_VOCAB.value), num_oov_buckets=tokenizer.num_oov_buckets)
    number = _BATCH.value * _BATCHES.value
    examples = [*read_turns(_DATA.value, "train", max_examples=-(-number // 2))]
    texts = [example.turns[-1] for example in examples]
    texts = [text.encode() for text in (*texts, *(example.response for example in examples))]
    texts = texts[:number]
    token_ids = tf.function(tokenizer.token_ids, input_signature=[tf.TensorSpec([None], tf.string)])
    token_ids(tf.constant(texts[: _BATCH.value]))
    rates: dict[str, list[float]] = {"graph": [], "light": []}
    different = 0
    for start in range(0, len(texts), _BATCH.value):
        batch = texts[start : start + _BATCH.value]
        strings = tf.constant(batch)
        moment = time.perf_counter()
        of_graph = token_ids(strings)
        rates["graph"].append(len(batch) / (time.perf_counter() - moment))
        moment = time.perf_counter()
        of_light = plain.flat_ids(batch)
        rates["light"].append(len(batch) / (time.perf_counter() - moment))
        flat, splits = of_graph.flat_values.numpy(), of_graph.row_splits.numpy()
        if not (np.array_equal(flat, of_light[0]) and np.array_equal(splits, of_light[1])):
            different += sum(
                not np.array_equal(flat[slice(*splits[i : i + 2])], of_light[0][slice(*light)])
                for i, light in enumerate(zip(of_light[1][:-1], of_light[1][1:], strict=True))
            )
    length = np.mean([len(text) for text in texts])
    for name, own in rates.items():
        print(f"{name}: {np.median(own):,.0f} texts/s")
    print(f"{len(texts):,} texts of {length:.0f} bytes on average, {different} with different ids")


if __name__ == "__main__":
    app.run(main)
