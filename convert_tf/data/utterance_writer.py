"""Single texts to token ids, as `convert_tf.data.utterances` reads them."""

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from convert_tf.data.packing import TokenIds
from convert_tf.data.token_writer import ArrayFolderWriter, TextsAndColumns, array_files
from convert_tf.data.utterances import TEXT, Utterance, is_held_out, read_utterances
from convert_tf.storage.folders import OutputFolder
from convert_tf.storage.progress import Progress
from convert_tf.text.loading import load_tokenizer

_BATCH_SIZE = 1024


def tokenize_utterances(
    patterns: Sequence[str],
    output: str,
    *,
    vocabulary: str,
    max_tokens: int = 60,
    num_oov_buckets: int = 1000,
    dev_fraction: float = 0.0,
    ignored_labels: Collection[str] = (),
    overwrite: bool = False,
) -> dict[str, Any]:
    """Writes the token ids of files of single texts, each text once.

    The files are read once for each split. The folder gets its name when it is complete.

    Args:
      patterns: of the files.
      output: folder to write.
      vocabulary, max_tokens, num_oov_buckets, overwrite: as of `tokenize_records`.
      dev_fraction: share of the intents, and of the texts without one, that are in the split `dev`;
        the rest is in `train`.
      ignored_labels: sources whose labels are no intents, as the forums of titles.

    Returns:
      What `arrays.json` says, and `seconds`.

    Raises:
      ValueError: there is no file, a line is none of a text, the vocabulary is none, or `output`
        holds something.
      OSError: a file cannot be read or written.
    """
    if not 0 <= dev_fraction < 1:
        raise ValueError(
            f"dev_fraction must be at least 0 and below 1. Received: {dev_fraction}. Pass 0.1 for "
            "a tenth, or 0 for none."
        )
    place = OutputFolder(output, data_files=array_files, is_own=True, overwrite=overwrite)
    started = time.monotonic()
    tokenizer = load_tokenizer(vocabulary, num_oov_buckets=num_oov_buckets)
    columns = ("sources", "labels")
    with place.open() as folder, Progress("texts") as progress:
        writer = ArrayFolderWriter(folder, tokenizer, max_tokens=max_tokens, columns=columns)
        for split in ("train", "dev")[: 2 if dev_fraction else 1]:
            own = (
                each
                for each in read_utterances(patterns)
                if is_held_out(each, dev_fraction) == (split == "dev")
            )
            batches = _tokenized(own, tokenizer, max_tokens, ignored_labels, progress)
            writer.write_split(split, TEXT, batches)
        facts = writer.finish()
    return {**facts, "seconds": time.monotonic() - started}


def _tokenized(
    utterances: Iterator[Utterance],
    tokenizer: Any,
    max_tokens: int,
    ignored_labels: Collection[str],
    progress: Progress,
) -> Iterator[TextsAndColumns]:
    while batch := list(islice(utterances, _BATCH_SIZE)):
        ids = tokenizer.flat_ids([each.text.encode() for each in batch], max_tokens)
        labels = [
            each.label if each.label and each.source not in ignored_labels else None
            for each in batch
        ]
        yield [TokenIds(*ids)], {"sources": [each.source for each in batch], "labels": labels}
        progress.add(len(batch))


def utterance_summary(facts: Mapping[str, Any]) -> str:
    """What `tokenize_utterances` returned, for reading."""
    lines = [
        f"{split}: {counts['examples']:,} texts, {counts['tokens']['text']:,} tokens"
        for split, counts in facts["splits"].items()
    ]
    labels = len(facts["utterances"]["labels"])
    lines.append(f"{len(facts['sources']):,} sources, {labels:,} names of labels")
    return "\n".join(lines)
