"""How many texts a second a tokenizer turns into ids, in a `tf.function`.

```
python benchmarks/tokenizer.py --data data/ --vocab vocab.txt
```
"""

import time

import numpy as np
import tensorflow as tf
from absl import app, flags

from convert_tf.data.pipeline import read_pairs
from convert_tf.text.tokenizer import load_tokenizer

_DATA = flags.DEFINE_string("data", None, "Folder of records.", required=True)
_VOCAB = flags.DEFINE_string("vocab", None, "Vocabulary file.", required=True)
_BATCH = flags.DEFINE_integer("batch", 1000, "Texts of a batch.")
_BATCHES = flags.DEFINE_integer("batches", 20, "Batches, each timed.")


def main(argv: list[str]) -> None:
    del argv
    tokenizer = load_tokenizer(_VOCAB.value)
    number = _BATCH.value * _BATCHES.value
    contexts, responses = read_pairs(_DATA.value, "train", max_examples=number)
    texts = contexts + responses
    token_ids = tf.function(
        lambda strings: tokenizer.token_ids(strings).flat_values,
        input_signature=[tf.TensorSpec([None], tf.string)],
    )
    batches = [
        tf.constant(texts[start : start + _BATCH.value])
        for start in range(0, len(texts) - _BATCH.value + 1, _BATCH.value)
    ]
    token_ids(batches[0])
    rates = []
    for batch in batches:
        start = time.perf_counter()
        token_ids(batch).numpy()
        rates.append(_BATCH.value / (time.perf_counter() - start))
    length = np.mean([len(text) for text in texts])
    print(f"{np.median(rates):,.0f} texts/s, {length:.0f} bytes each on average")


if __name__ == "__main__":
    app.run(main)
