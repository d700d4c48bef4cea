"""Records to token ids, from which a machine without TensorFlow trains.

```
python -m convert_tf.data.tokenize --data data/ --vocab vocab.txt --output ids/
```

`train.py --data ids/` then gives the same batches as `train.py --data data/ --vocab vocab.txt`.
`convert_tf.data.arrays` says what is in the folder.
"""

import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
from absl import app, flags

from convert_tf.data.array_writer import (
    ArrayFolderWriter,
    TextsAndSources,
    array_files,
    check_output,
)
from convert_tf.data.batches import PAIR_AND_EXTRA_CONTEXT
from convert_tf.data.output_folder import OutputFolder
from convert_tf.data.packing import TokenIds
from convert_tf.data.pipeline import damaged_records, parse_sources, parse_texts
from convert_tf.data.progress import Progress
from convert_tf.data.record_index import RecordIndex
from convert_tf.data.records import list_shards, record_files
from convert_tf.data.threads import SPLITS
from convert_tf.text.tokenizer import load_tokenizer

BATCH_SIZE = 1024  # records


def _tokenized(shards: Sequence[str], tokenizer: Any, max_tokens: int) -> Iterator[TextsAndSources]:
    """Ids of the texts `PAIR_AND_EXTRA_CONTEXT` and sources, a batch of records after the other."""

    def tokenize(serialized: tf.Tensor) -> tuple[Any, tf.Tensor]:
        texts = parse_texts(serialized, PAIR_AND_EXTRA_CONTEXT)
        cut = [tokenizer.token_ids(own)[:, :max_tokens] for own in texts]
        ids = tuple((own.flat_values, own.row_splits) for own in cut)
        return ids, parse_sources(serialized)

    records = tf.data.TFRecordDataset(list(shards)).batch(BATCH_SIZE)
    batches = records.map(tokenize, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    for batch, sources in batches.prefetch(2).as_numpy_iterator():
        yield [TokenIds(*own) for own in batch], sources.tolist()


def tokenize_records(
    data: str,
    output: str,
    *,
    vocabulary: str,
    max_tokens: int = 60,
    num_oov_buckets: int = 1000,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Writes the token ids of all splits of a folder of records.

    Memory holds a few batches of records. The folder gets its name when it is complete; what a
    killed run left is deleted by the next one.

    Args:
      data: folder of records.
      output: folder to write.
      vocabulary: vocabulary file, which is copied.
      max_tokens: longer texts are cut to this many tokens; a model may read fewer.
      num_oov_buckets: ids that unknown tokens share; the model's.
      overwrite: whether token ids that are in `output` are replaced.

    Returns:
      What `arrays.json` says, and `seconds`.

    Raises:
      ValueError: there are no records or damaged ones, the vocabulary is none, or `output` holds
        something.
      OSError: a file cannot be read or written.
    """
    if max_tokens < 1:
        raise ValueError(
            f"A text keeps at least one token. Received: max_tokens={max_tokens}. Pass 1 or more; "
            "the paper has 60."
        )
    check_output(output, overwrite=overwrite)
    started = time.monotonic()
    found = {os.path.basename(path).split("-")[0] for path in record_files(data)}
    shards = {split: list_shards(data, split) for split in SPLITS if split in found or not found}
    examples = sum(RecordIndex(paths).num_records for paths in shards.values())
    tokenizer = load_tokenizer(vocabulary, num_oov_buckets=num_oov_buckets)
    names = PAIR_AND_EXTRA_CONTEXT
    place = OutputFolder(output, data_files=array_files, overwrite=overwrite)
    with place.open(), Progress("texts", total=len(names) * examples) as progress:

        def counted(batches: Iterator[TextsAndSources]) -> Iterator[TextsAndSources]:
            for texts, sources in batches:
                progress.add(len(names) * len(sources))
                yield texts, sources

        writer = ArrayFolderWriter(place.written, tokenizer, max_tokens=max_tokens)
        for split, paths in shards.items():
            try:
                writer.write_split(split, names, counted(_tokenized(paths, tokenizer, max_tokens)))
            except tf.errors.OpError as error:
                raise damaged_records(data, split, error) from error
        facts = writer.finish()
        place.publish()
    return {**facts, "seconds": time.monotonic() - started}


def summary(facts: Mapping[str, Any]) -> str:
    """What `tokenize_records` returned, for reading."""
    lines = [f"{'split':<8}{'examples':>14}{'context':>16}{'response':>16}{'extra context':>16}"]
    for split, counts in facts["splits"].items():
        tokens = "".join(f"{counts['tokens'][name]:>16,}" for name in PAIR_AND_EXTRA_CONTEXT)
        lines.append(f"{split:<8}{counts['examples']:>14,}{tokens}")
    texts = sum(counts["examples"] for counts in facts["splits"].values()) * 3
    lines.append(
        f"tokens as {facts['dtype']}; {texts:,} texts in {facts['seconds']:.1f} s, "
        f"{texts / max(facts['seconds'], 1e-9):,.0f}/s"
    )
    return "\n".join(lines)


def _define_flags() -> None:
    flags.DEFINE_string("data", None, "Folder of records.", required=True)
    flags.DEFINE_string("vocab", None, "Vocabulary file.", required=True)
    flags.DEFINE_string("output", None, "Folder of token ids to write.", required=True)
    flags.DEFINE_integer("max_tokens", 60, "Longer texts are cut to this many tokens.")
    flags.DEFINE_integer("num_oov_buckets", 1000, "Ids that unknown tokens share.")
    flags.DEFINE_bool("overwrite", False, "Replace token ids that are in --output already.")


def _run(argv: Sequence[str]) -> None:
    values = flags.FLAGS
    if len(argv) > 1:
        raise app.UsageError(f"Flags are given as --name=value. Received: {argv[1:]}.")
    try:
        facts = tokenize_records(
            values.data,
            values.output,
            vocabulary=values.vocab,
            max_tokens=values.max_tokens,
            num_oov_buckets=values.num_oov_buckets,
            overwrite=values.overwrite,
        )
    except (ValueError, OSError) as error:
        sys.exit(f"tokenize: {error}")
    print(summary(facts))
    print(f"wrote {values.output}")


if __name__ == "__main__":
    _define_flags()
    app.run(_run)
