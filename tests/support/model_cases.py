"""Weights, texts and batches shared by several tests of the network."""

import zlib

import numpy as np

from convert_tf.config.model import ModelConfig
from convert_tf.data.packing import TokenIds, pack_batch
from convert_tf.data.schema import PAIR

# Every part of the network has another width, so that a mix-up changes a shape.
SMALL = ModelConfig(
    vocab_size=20,
    num_oov_buckets=3,
    embedding_dim=8,
    position_table_sizes=(5, 3),
    max_relative_attention=(2, 5),
    attention_dim=4,
    feed_forward_dim=12,
    reduction_dim=3,
    side_layers=2,
    side_hidden_dim=16,
    encoding_dim=6,
    max_tokens=12,
)


def fill_weights(variables) -> None:
    """Set each trainable variable from its path; NumPy never changes `RandomState` streams."""
    for variable in variables:
        if not variable.trainable:
            continue
        random = np.random.RandomState(zlib.crc32(variable.path.encode()))
        values = random.standard_normal(tuple(variable.shape))
        if variable.path.endswith("gamma"):
            values = 1.0 + 0.2 * values
        elif variable.path.endswith("embedding/table"):
            values = 0.3 * values
        elif len(variable.shape) > 1 and "relative_bias" not in variable.path:
            values = values / np.sqrt(variable.shape[0])
        else:
            values = 0.3 * values
        variable.assign(values.astype("float32"))


def random_texts(config, lengths, *, seed: int = 0) -> list[np.ndarray]:
    random = np.random.RandomState(seed)
    return [random.randint(0, config.num_ids, size=n).astype("int32") for n in lengths]


def one_per_row(texts, padding_id: int, *, width: int | None = None) -> np.ndarray:
    """Return int32 `[texts, width]`, right-padded."""
    width = max([1, *map(len, texts)]) if width is None else width
    rows = np.full((len(texts), width), padding_id, "int32")
    for row, text in zip(rows, texts, strict=True):
        row[: len(text)] = text
    return rows


def ragged(texts) -> TokenIds:
    return TokenIds(
        np.concatenate([np.zeros(0, "int32"), *texts]), np.cumsum([0, *map(len, texts)])
    )


def packed_batch(contexts, responses, padding_id: int, *, row_tokens: int) -> dict:
    """Return a batch for `DualEncoder` with texts packed into rows."""
    texts = ragged([*contexts, *responses])
    return pack_batch(texts, PAIR, row_tokens=row_tokens, padding_id=padding_id)


def texts_in(batch, name: str) -> list[tuple[int, ...]]:
    """Return the tokens of each text in a packed batch, located by slot as in the encoder."""
    if batch["token_ids"].ndim == 3:
        parts = [
            {key: value[:, part] for key, value in batch.items() if value.ndim > 1}
            for part in range(batch["token_ids"].shape[1])
        ]
        k = len(batch[f"{name}_slots"]) // len(batch["context_slots"])
        of_parts = [texts_in(part, name) for part in parts]
        places = range(0, len(of_parts[0]), k)
        return [text for i in places for texts in of_parts for text in texts[i : i + k]]
    ends = batch["segment_lengths"].cumsum(axis=1)
    starts = ends - batch["segment_lengths"]
    places = [divmod(int(slot), ends.shape[1]) for slot in batch[f"{name}_slots"]]
    return [tuple(batch["token_ids"][r, starts[r, s] : ends[r, s]].tolist()) for r, s in places]


def gradients_of(loss, variables) -> dict[str, np.ndarray]:
    """Return the gradients of `loss()` by variable path, with zeros for missing gradients.

    This function needs TensorFlow and imports it only when called, because other tests use this
    module with JAX alone.
    """
    import tensorflow as tf

    with tf.GradientTape() as tape:
        value = loss()
    found = tape.gradient(
        value, [v.value for v in variables], unconnected_gradients=tf.UnconnectedGradients.ZERO
    )
    return {
        v.path: np.asarray(tf.convert_to_tensor(g)) for v, g in zip(variables, found, strict=True)
    }


def outputs_of(model, inputs, **kwargs) -> dict:
    return {name: np.asarray(value) for name, value in model(inputs, **kwargs).items()}
