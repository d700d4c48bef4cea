"""Fine-tune a BERT model with a softmax layer on labelled texts.

```
python benchmarks/finetuned_bert.py --bert MiniLM/ --train banking77.train_10shot.csv \
    --validation banking77.valid.csv --test banking77.test.csv --output results/
```

The result is a baseline for classifiers on fixed encodings. Dropout and a dense layer with one unit
per label follow the first output ([CLS]). All weights are trained with AdamW. The learning rate
rises linearly over a tenth of the steps, and then falls linearly to zero. The weights of the epoch
with the highest accuracy on `--validation` are tested.

Reference: arXiv 1810.04805 §4.1; arXiv 1911.03688 §3 (as a baseline for intents).
"""

from pathlib import Path
from typing import Any

import keras
import numpy as np
from absl import app, flags

from convert_tf.checkpoints.loading import initial_ranker
from convert_tf.config.ranker import HeadConfig
from convert_tf.data.ranking_batches import padded
from convert_tf.intents.data import read_labelled
from convert_tf.numerics.initializers import set_seed
from convert_tf.ranking.checkpoint import make_tokenize
from convert_tf.storage.json_text import written_json

_BERT = flags.DEFINE_string("bert", None, "Hugging Face folder of a BERT model.", required=True)
_TRAIN = flags.DEFINE_string("train", None, "Labelled texts to train on.", required=True)
_VALIDATION = flags.DEFINE_string(
    "validation", None, "Texts for choosing the epoch.", required=True
)
_TEST = flags.DEFINE_string("test", None, "Labelled texts to test on.", required=True)
_OUTPUT = flags.DEFINE_string("output", None, "Folder for evaluation.json.", required=True)
_EPOCHS = flags.DEFINE_integer("epochs", 20, "Passes over the training texts.")
_BATCH_SIZE = flags.DEFINE_integer("batch_size", 32, "Texts per step.")
_RATE = flags.DEFINE_float("learning_rate", 1e-4, "Peak learning rate.")
_DROPOUT = flags.DEFINE_float("dropout", 0.1, "Dropout rate of the first output.")
_SEED = flags.DEFINE_integer("seed", 0, "Seed of the dense layer, the order and dropout.")


class LinearSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """Learning rate with linear warm-up over a tenth of the steps, then linear decay to zero."""

    def __init__(self, peak: float, steps: int) -> None:
        self.peak, self.steps = peak, steps

    def __call__(self, step: Any) -> Any:
        done = (keras.ops.cast(step, "float32") + 1) / self.steps
        return self.peak * keras.ops.clip(keras.ops.minimum(done / 0.1, (1 - done) / 0.9), 0, 1)


class Classifier(keras.Model):
    """Maps token ids `[n, T]` to logits `[n, labels]`."""

    def __init__(self, ranker: keras.Model, labels: int) -> None:
        super().__init__()
        self.ranker = ranker
        self.dropout = keras.layers.Dropout(_DROPOUT.value)
        self.logits = keras.layers.Dense(labels)

    def call(self, token_ids: Any, training: bool = False) -> Any:
        encodings = self.ranker.encode_candidates(token_ids, training=training)
        return self.logits(self.dropout(encodings, training=training))


def main(argv: list[str]) -> None:
    del argv
    set_seed(_SEED.value)
    ranker, vocabulary = initial_ranker(_BERT.value, HeadConfig())
    tokenize = make_tokenize(vocabulary, ranker.config)
    names = sorted({*read_labelled(_TRAIN.value).labels})
    data = {}
    for split, path in (
        ("train", _TRAIN.value), ("validation", _VALIDATION.value), ("test", _TEST.value)
    ):  # fmt: skip
        texts, labels = read_labelled(path)
        data[split] = tokenize(texts, 60, False), np.array([names.index(label) for label in labels])
    ids, labels = data["train"]
    model = Classifier(ranker, len(names))
    per_epoch = len(labels) // _BATCH_SIZE.value
    schedule = LinearSchedule(_RATE.value, per_epoch * _EPOCHS.value)
    model.compile(
        keras.optimizers.AdamW(schedule, weight_decay=0.01, clipnorm=1.0),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )

    def accuracy(split: str) -> float:
        ids, labels = data[split]
        right = 0
        for start in range(0, len(labels), 256):
            part = np.arange(start, min(start + 256, len(labels)))
            logits = model.predict_on_batch(padded(ids, part, ranker.padding_id))
            right += int((np.argmax(logits, -1) == labels[part]).sum())
        return right / len(labels)

    random, best, weights = np.random.default_rng(_SEED.value), 0.0, None
    for epoch in range(_EPOCHS.value):
        order = random.permutation(len(labels))[: per_epoch * _BATCH_SIZE.value]
        losses = [
            model.train_on_batch(padded(ids, part, ranker.padding_id), labels[part])
            for part in order.reshape(per_epoch, -1)
        ]
        score = accuracy("validation")
        print(f"epoch {epoch + 1}  loss {np.mean(losses):.3f}  validation {100 * score:.1f} %")
        if score > best:
            best, weights = score, model.get_weights()
    if weights is None:
        raise ValueError("No text of --validation is classified correctly after any epoch.")
    model.set_weights(weights)
    result = {"accuracy": accuracy("test"), "examples": len(data["test"][1])}
    folder = Path(_OUTPUT.value)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "evaluation.json").write_text(written_json(result), encoding="utf-8")
    print(f"test {100 * result['accuracy']:.1f} %")


if __name__ == "__main__":
    app.run(main)
