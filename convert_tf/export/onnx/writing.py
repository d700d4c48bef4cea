"""Write an encoder as one `.onnx` file, which `SentenceEncoder` runs without TensorFlow.

The file contains the network (`convert_tf.export.onnx.graph`). Its metadata contains the
vocabulary, the configuration, the maximum length of texts and a model card. A module
can be converted without TensorFlow, but a run cannot.
"""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from convert_tf.checkpoints.facts import numbers_turns
from convert_tf.checkpoints.identity import ORIGIN_KEY, origin_text
from convert_tf.checkpoints.kinds import CheckpointError
from convert_tf.checkpoints.vocabulary import plain_tokenizer
from convert_tf.encoding.backends.onnx import (
    CHECKSUM_KEY,
    CONFIG_KEY,
    FACTS_KEY,
    FORMAT_VERSION,
    VOCABULARY_KEY,
    OnnxBackend,
    graph_inputs,
    no_texts,
    onnx_runtime,
    with_checksum,
)
from convert_tf.export.cards import CARD_FILE, encoder_card
from convert_tf.export.opening import opened_source
from convert_tf.export.source import EncoderSource
from convert_tf.extras import needs
from convert_tf.storage.files import check_replaceable, only_writer, write_file

with needs("", "Writing .onnx files"):
    import onnx

    from convert_tf.export.onnx.graph import GraphBuilder
    from convert_tf.export.onnx.ops import Calibration, as_array

NETWORK_BITS = (32, 8)

_CALIBRATION_PASSES = 2
_TEXTS_AT_ONCE = 64
_VALUES_OF_EACH = 64  # number of tokens per batch whose values are kept


def export_onnx(
    checkpoint: str | os.PathLike,
    output: str | os.PathLike,
    *,
    network_bits: int = 8,
    max_tokens: int | None = None,
    notes: str = "",
    overwrite: bool = False,
    metadata: Mapping[str, str] | None = None,
) -> Path:
    """Write the `.onnx` file of an encoder.

    Args:
      checkpoint: a run or module with a subword vocabulary, or a Hugging Face folder.
      output: the file to write. Missing parent folders are created.
      network_bits: number of bits per weight of the network. With 8, the file multiplies 8-bit
        integers. With 32, it gives the same encodings as the run for texts of up to the run's
        `max_tokens`. In both cases, the subword table has 8 bits, as in training.
      max_tokens: maximum number of tokens per text. If None, 512, or the limit of `checkpoint` if
        it is a module. The run itself reads only as many tokens as in training.
      notes: Markdown to add to the model card.
      overwrite: whether to replace an existing file.
      metadata: further entries for the file's metadata, by key.

    Returns:
      `output`.

    Raises:
      ValueError: if an argument is invalid, `output` exists, or another process is writing it.
      CheckpointError: if the run is incomplete or damaged, has no subword vocabulary, or has a
        weight or a similarity map with NaN or infinite numbers.
    """
    check_replaceable(output, _has_facts, overwrite=overwrite)
    if network_bits not in NETWORK_BITS:
        raise ValueError(
            f".onnx files can have {' or '.join(map(str, NETWORK_BITS))} bits per weight. "
            f"Received: network_bits={network_bits}. With 8, the file is smaller and faster."
        )
    with only_writer(output), opened_for_onnx(checkpoint, max_tokens) as source:
        config = source.encoder.config
        model = GraphBuilder(source, calibrated(source) if network_bits == 8 else None).build()
        card = encoder_card("onnx", source, network_bits=network_bits, notes=notes)
        origin = origin_text(checkpoint, network_bits=network_bits, max_tokens=source.max_tokens)
        facts = {
            "format_version": FORMAT_VERSION,
            "max_tokens": source.max_tokens,
            "network_bits": network_bits,
            "num_oov_buckets": config.num_oov_buckets,
            "multi_context": config.multi_context,
            "reduced_dim": config.reduced_dim,
            "encoding_dim": config.encoding_dim,
            "similarity_dim": source.similarity_dim,
            "turn_prefixes": numbers_turns(checkpoint),
        }
        for key, value in (
            (FACTS_KEY, json.dumps(facts)),
            (CONFIG_KEY, config.to_json()),
            (VOCABULARY_KEY, source.vocabulary.read_text(encoding="utf-8")),
            (CARD_FILE, card),
            *(metadata or {}).items(),
            (ORIGIN_KEY, origin),
        ):
            model.metadata_props.add(key=key, value=value)
        write_file(output, with_checksum(model.SerializeToString()), follows_links=True)
    return Path(output)


def copy_onnx(
    source: str | os.PathLike,
    output: str | os.PathLike,
    *,
    network_bits: int = 8,
    overwrite: bool = False,
    metadata: Mapping[str, str],
) -> Path:
    """Copy an `.onnx` file that `export_onnx` wrote, with further metadata.

    Args:
      source: the file to copy.
      network_bits: number of bits per weight in the file. A copy cannot change this number.
      output, overwrite, metadata: as in `export_onnx`.

    Raises:
      ValueError: if `source` is damaged or has another number of bits, `output` exists, or another
        process is writing it.
    """
    check_replaceable(output, _has_facts, overwrite=overwrite)
    bits = OnnxBackend(source).facts.get("network_bits")
    if bits != network_bits:
        raise ValueError(
            f"{os.fspath(source)!r} has {bits} bits per weight, and copying cannot change this "
            f"number. Received: network_bits={network_bits}. Pass {bits}, or export the module "
            f"with {network_bits}."
        )
    with only_writer(output):
        model = onnx.load_model_from_string(Path(source).read_bytes())
        replaced = {*metadata, CHECKSUM_KEY}
        former = {
            entry.key: entry.value for entry in model.metadata_props if entry.key not in replaced
        }
        del model.metadata_props[:]
        entries = {**former, **metadata}
        if ORIGIN_KEY in entries:  # must be the last entry, where `identity_of` reads it
            entries[ORIGIN_KEY] = entries.pop(ORIGIN_KEY)
        for key, value in entries.items():
            model.metadata_props.add(key=key, value=value)
        write_file(output, with_checksum(model.SerializeToString()), follows_links=True)
    return Path(output)


def _has_facts(path: str | os.PathLike) -> bool:
    """Return whether a file has convert_tf's metadata.

    The file may be damaged, or may come from an earlier version.
    """
    # In protobuf, the key of an entry stands between its length and the tag of the entry's value.
    return f"\n\n{FACTS_KEY}\x12".encode() in Path(path).read_bytes()


@contextlib.contextmanager
def opened_for_onnx(
    checkpoint: str | os.PathLike, max_tokens: int | None
) -> Iterator[EncoderSource]:
    """Load an encoder to write as an ONNX file; see `export_onnx` for arguments and errors."""
    with opened_source(checkpoint, max_tokens, as_keras=False) as source:
        config = source.encoder.config
        if config.tokenizer != "subword":
            raise CheckpointError(
                f"The tokenizer of {os.fspath(checkpoint)!r} is {config.tokenizer}; this format "
                "supports only subword vocabularies. Export a module instead: omit --format, and "
                "pass a folder as --output."
            )
        plain_tokenizer(source.vocabulary, config)  # raises an error if they do not fit
        variables = getattr(source.encoder, "trainable_variables", ())
        weights = [(variable.path, variable) for variable in variables]
        if source.similarity_map is not None:
            weights.append(("The similarity map", source.similarity_map))
        for name, weight in weights:
            if not np.isfinite(as_array(weight)).all():
                raise CheckpointError(
                    f"{name} has NaN or infinite numbers. Export an earlier checkpoint of the run."
                )
        yield source


def calibrated(source: EncoderSource) -> dict[str, Calibration]:
    """Measure the activations in the blocks on random texts, which contain every subword.

    No data are needed, because layer norms make the activations of all texts similar. Activations
    for real sentences have about the same ranges, and similar mean errors when they are rounded to
    bytes. With wider ranges, fewer values would be clipped, but all values would be rounded more
    coarsely.
    """
    config = source.encoder.config
    builder = GraphBuilder(source._replace(similarity_map=None))
    model = builder.build(observes=True)
    with needs("", "Writing .onnx files"):
        onnxruntime = onnx_runtime()
    options = onnxruntime.SessionOptions()
    # Several threads wait for each other, which is slow if other programs use the same cores.
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    rng, choice = np.random.default_rng(0), np.random.default_rng(1)
    longest = min(config.max_tokens, source.max_tokens)
    ranges = dict.fromkeys(builder.observed, (0.0, 0.0))
    samples: dict[str, list[np.ndarray]] = {name: [] for name in builder.observed}
    every_id = np.arange(config.num_ids, dtype=np.int32)
    all_ids = np.concatenate([rng.permutation(every_id) for _ in range(_CALIBRATION_PASSES)])
    start = 0
    while start < len(all_ids):
        lengths = rng.integers(1, longest + 1, _TEXTS_AT_ONCE)
        ids = all_ids[start : start + lengths.sum()]
        start += len(ids)
        row_splits = np.minimum(np.concatenate([[0], np.cumsum(lengths)]), len(ids))
        inputs = graph_inputs(ids, row_splits)
        is_real = inputs["segment_ids"] > 0
        feeds = {**no_texts(session), **inputs}
        values = session.run(builder.observed, feeds)
        chosen = choice.integers(0, is_real.sum(), _VALUES_OF_EACH)
        for name, value in zip(builder.observed, values, strict=True):
            low, high = ranges[name]
            real = value.reshape(*is_real.shape, -1)[is_real]
            ranges[name] = min(low, float(real.min())), max(high, float(real.max()))
            samples[name].append(real[chosen])
    return {
        name: Calibration.measured(*ranges[name], np.concatenate(samples[name])) for name in ranges
    }
