"""Trains an intent head and its encoder together, from a checkpoint."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from convert_tf.checkpoint import (
    check_vocabulary,
    load_config,
    load_weights,
    save_checkpoint,
    training_facts,
    vocabulary_path,
)
from convert_tf.encoders import DualEncoder
from convert_tf.intent_head import DenseLayer, Head, of_unit_length

_LENGTH_STEP = 16  # tokens; each length of a batch is compiled once
_MIN_NORM = 1e-12


class FinetuneOptions(NamedTuple):
    """How encoder and head are trained together.

    Attributes:
      learning_rate: of Adam.
      epochs: at most.
      patience: epochs without better validation accuracy before the end.
      batch_size: texts of a step.
      dropout: on the encoding.
      embedding_dropout, attention_dropout: in the encoder.
      precision: policy of the encoder's computations.
      seed: of the order and of dropout.
    """

    learning_rate: float = 3e-5
    epochs: int = 30
    patience: int = 5
    batch_size: int = 32
    dropout: float = 0.5
    embedding_dropout: float = 0.1
    attention_dropout: float = 0.1
    precision: str = "float32"
    seed: int = 0


class Finetuned(NamedTuple):
    """What fine-tuning made.

    Attributes:
      head: the best head on the validation part.
      facts: `epochs`, `best_epoch`, `validation_accuracy_before` and `…_after`,
        `validation_examples`, `trained_weights` and `relative_change`, the length of the encoder's
        change by that of its weights.
    """

    head: Head
    facts: dict[str, Any]


class CheckpointSentences:
    """Texts to r with the network of a checkpoint.

    Args:
      folder: a model directory.
      is_trained: False leaves the weights as they are initialised, the row of an untrained encoder.
      seed: of these.
      encoder: options of `DualEncoder`.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        is_trained: bool = True,
        seed: int = 0,
        **encoder: Any,
    ):
        from convert_tf.text.tokenizer import load_tokenizer

        config = load_config(folder)
        self.vocabulary = vocabulary_path(folder, config)
        self._tokenizer = load_tokenizer(self.vocabulary, num_oov_buckets=config.num_oov_buckets)
        check_vocabulary(self._tokenizer, config)
        keras.utils.set_random_seed(seed)
        self.network = DualEncoder(config, **encoder)
        if is_trained:
            load_weights(self.network, folder)

    def token_ids(self, texts: Sequence[str]) -> np.ndarray:
        """int32 `[texts, tokens]`, padded to a multiple of 16 tokens."""
        config = self.network.config
        ragged = self._tokenizer.token_ids(list(texts))[:, : config.max_tokens]
        longest = max(int(ragged.bounding_shape()[1]), 1)
        width = -(-longest // _LENGTH_STEP) * _LENGTH_STEP
        return ragged.to_tensor(self._tokenizer.padding_id, shape=(None, width)).numpy()

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """float32 `[texts, reduced_dim]`."""
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        encodings = np.zeros((len(texts), self.network.config.reduced_dim), np.float32)
        for start in range(0, len(order), 64):
            batch = order[start : start + 64]
            token_ids = self.token_ids([texts[i] for i in batch])
            encodings[batch] = ops.convert_to_numpy(self.network.reduce(token_ids))
        return encodings


class IntentNetwork(keras.Model):
    """Encoder and head as one trainable model.

    Masking: padding is never read.

    Args:
      encoder: the network.
      head: initial weights of the head.
      dropout: on the encoding, of length 1.

    Call arguments:
      token_ids: int32 `[batch, tokens]`, right-padded.

    Returns:
      Logits float32 `[batch, intents]`.

    Example:
      logits = IntentNetwork(encoder, head, dropout=0.5)(token_ids)
    """

    def __init__(self, encoder: DualEncoder, head: Head, *, dropout: float):
        super().__init__()
        self.encoder = encoder
        self.dropout = keras.layers.Dropout(dropout, dtype="float32")
        last = len(head.layers) - 1
        self.dense = [
            keras.layers.Dense(
                len(bias), activation="relu" if index < last else None, dtype="float32"
            )
            for index, (_, bias) in enumerate(head.layers)
        ]
        for layer, (kernel, bias) in zip(self.dense, head.layers, strict=True):
            layer.build((None, len(kernel)))
            layer.set_weights([kernel, bias])

    def call(self, token_ids: Any, training: bool = False) -> Any:
        reduced = ops.cast(self.encoder.reduce(token_ids, training=training), "float32")
        squares = ops.sum(ops.square(reduced), axis=-1, keepdims=True)
        values = self.dropout(reduced * ops.rsqrt(squares + _MIN_NORM), training=training)
        for layer in self.dense:
            values = layer(values)
        return values

    def head(self) -> Head:
        """The head's weights as arrays."""
        return Head([DenseLayer(*map(np.array, layer.get_weights())) for layer in self.dense])


def finetune(
    checkpoint: str | os.PathLike[str],
    head: Head,
    *,
    train: tuple[Sequence[str], np.ndarray],
    validation: tuple[Sequence[str], np.ndarray],
    output: str | os.PathLike[str],
    options: FinetuneOptions | None = None,
) -> Finetuned:
    """Trains encoder and head together and writes the checkpoint of the best epoch.

    The trunk and the reduction are trained; the side networks of contexts and responses are not,
    as r does not pass them, and no longer fit the trunk when it has changed.

    Args:
      checkpoint: a model directory or module to start from.
      head: trained on its frozen encodings.
      train: texts, and int `[n]` numbers of their intents.
      validation: the same, for early stopping; nothing else is learnt from them.
      output: model directory of the fine-tuned encoder.
      options: see there.

    Raises:
      ValueError: there is nothing to validate on, or an option is out of range.
      CheckpointError: the checkpoint is damaged, or the new one cannot be written.
    """
    options = options or FinetuneOptions()
    if not len(validation[0]) or min(options.epochs, options.batch_size, options.patience) < 1:
        raise ValueError(
            "Fine-tuning needs examples to validate on, and epochs, batch_size and patience of 1 "
            f"or more. Received: {len(validation[0])} examples, {options}."
        )
    sentences = CheckpointSentences(
        checkpoint,
        seed=options.seed,
        embedding_dropout=options.embedding_dropout,
        attention_dropout=options.attention_dropout,
        dtype=options.precision,
    )
    encoder = sentences.network
    for name in ("context_side", "response_side", "extra_context_side", "both_side"):
        if getattr(encoder, name, None) is not None:  # only multi-context models have the latter
            getattr(encoder, name).trainable = False
    model = IntentNetwork(encoder, head, dropout=options.dropout)
    model.compile(
        optimizer=keras.optimizers.Adam(options.learning_rate),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=False,
    )
    start = [np.array(variable) for variable in encoder.trainable_variables]
    before = accuracy = _accuracy(model, sentences, validation)
    best_weights, best_epoch, epoch = model.get_weights(), 0, 0
    rng = np.random.default_rng(options.seed)
    for epoch in range(1, options.epochs + 1):
        loss = 0.0
        for texts, labels in _batches(train, options.batch_size, rng):
            loss = float(model.train_on_batch(sentences.token_ids(texts), labels))
        found = _accuracy(model, sentences, validation)
        print(f"epoch {epoch}: loss {loss:.3f}, validation accuracy {found:.2%}")
        if found > accuracy:
            best_weights, best_epoch, accuracy = model.get_weights(), epoch, found
        if epoch - best_epoch >= options.patience:
            break
    model.set_weights(best_weights)
    facts = {
        "epochs": epoch,
        "best_epoch": best_epoch,
        "validation_examples": len(validation[0]),
        "validation_accuracy_before": before,
        "validation_accuracy_after": accuracy,
        "trained_weights": int(sum(values.size for values in start)),
        "relative_change": _relative_change(start, encoder.trainable_variables),
        "options": options._asdict(),
    }
    save_checkpoint(
        Path(output),
        encoder,
        vocabulary=sentences.vocabulary,
        training={**training_facts(checkpoint), "intent_finetuning": facts},
    )
    return Finetuned(model.head(), facts)


def _batches(
    examples: tuple[Sequence[str], np.ndarray], batch_size: int, rng: np.random.Generator
) -> Iterator[tuple[list[str], np.ndarray]]:
    """An epoch in random order, batches of equal size: the last is filled up from the first."""
    texts, labels = examples
    order = rng.permutation(len(texts))
    size = min(batch_size, len(texts))
    for start in range(0, len(order), size):
        batch = np.take(order, range(start, start + size), mode="wrap")
        yield [texts[i] for i in batch], labels[batch]


def _accuracy(
    model: IntentNetwork, sentences: CheckpointSentences, examples: tuple[Sequence[str], np.ndarray]
) -> float:
    texts, labels = examples
    probabilities = model.head().probabilities(of_unit_length(sentences.encode(texts)))
    return float(np.mean(probabilities.argmax(axis=1) == labels))


def _relative_change(before: Sequence[np.ndarray], variables: Sequence[Any]) -> float:
    after = [np.array(variable) for variable in variables]
    moved = sum(float(np.sum((a - b) ** 2)) for a, b in zip(after, before, strict=True))
    return float(np.sqrt(moved / sum(float(np.sum(b**2)) for b in before)))
