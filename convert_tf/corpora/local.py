"""Prepare data on one machine, from dumps and other corpora to a data folder.

An external sort brings the comments of the dumps together by thread. A second sort brings examples
into the order of the shards: examples of threads, and of corpora with whole conversations. Memory
holds one thread, not the dumps.
"""

import contextlib
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from convert_tf.corpora import report
from convert_tf.corpora.data_folder import SINGLE_TEXTS, open_data_folder
from convert_tf.corpora.dumps import BadLines, CountedFile
from convert_tf.corpora.options import PrepareOptions
from convert_tf.corpora.registry import CORPORA
from convert_tf.corpora.rows import EXAMPLES, KINDS, PAIRS, TEXTS, TURNS, Output, Row, RowMaker
from convert_tf.corpora.sorting import ExternalSorter
from convert_tf.data import records
from convert_tf.storage.progress import Progress
from convert_tf.storage.streams import zst_written


def prepare(
    inputs: Sequence[str],
    output: str,
    *,
    submissions: Sequence[str] = (),
    corpora: Mapping[str, Sequence[str]] | None = None,
    options: PrepareOptions | None = None,
    vocabulary: str | None = None,
    tokenize: bool = False,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Write a data folder from dump files and other corpora.

    The folder appears complete or not at all: everything is written to a temporary folder, which is
    renamed at the end. A run that is killed leaves that folder. The next run with the same output
    deletes it and starts again.

    Args:
        inputs: files of Reddit comments.
        output: the data folder.
        submissions: files of Reddit submissions.
        corpora: files of other corpora by the corpus's name.
        options: rules, sizes and limits.
        vocabulary: a vocabulary file to measure lengths with; None learns one from a sample.
        tokenize: whether to write token ids with `vocabulary` to `ids/` in the folder.
        overwrite: whether to replace existing records in the folder.

    Returns:
        The report, as written to `report.json`.

    Raises:
        ValueError: if there are records in the folder already, another process writes it, the input
            gives no example, there are more unusable lines than allowed, or `tokenize` is set
            without a vocabulary.
        OSError: if a file cannot be read or written; with `errno.ENOSPC` if the disk is full.
    """
    options = options or PrepareOptions()
    maker = RowMaker(options)
    paths = {"comments": inputs, "submissions": submissions, **(corpora or {})}
    bad_lines = BadLines(limit=options.max_bad_lines)
    files = {
        what: [
            CountedFile(path, max_line_bytes=options.max_line_bytes, bad_lines=bad_lines)
            for path in paths[what]
        ]
        for what in paths
    }
    opened = open_data_folder(
        output,
        vocabulary=vocabulary,
        tokenize=tokenize,
        overwrite=overwrite,
        temp_dir=options.temp_dir,
    )
    with opened as folder, contextlib.ExitStack() as stack:
        sorters = {
            kind: stack.enter_context(
                ExternalSorter(folder.scratch, name=kind, memory_limit=options.memory_limit)
            )
            for kind in KINDS
        }
        for what in files:
            _sort(_rows_of_files(maker, what, files[what]), sorters)
        _sort(maker.rows_of_threads(_sorted(sorters[TURNS], "turns in threads")), sorters)
        _sort(maker.unique_pairs(_sorted(sorters[PAIRS], "pairs compared")), sorters)
        for file in itertools.chain(*files.values()):
            file.print_warnings()
        if not sorters[EXAMPLES].num_rows:
            raise ValueError(report.why_no_example(maker.counts, files))
        written = Output(num_train_shards=options.num_shards["train"])
        records.write_shards(
            folder.written,
            written.examples_of(_sorted(sorters[EXAMPLES], "examples written")),
            num_shards=options.num_shards,
        )
        if any(rules.single_texts for rules in options.rules_by_corpus(paths).values()):
            with zst_written(os.path.join(folder.written, SINGLE_TEXTS)) as target:
                for line in written.lines_of(_sorted(sorters[TEXTS], "single texts written")):
                    target.write(line)
        folder.report = report.assemble(files, bad_lines, maker, written, vocabulary)
    return folder.report


def _rows_of_files(maker: RowMaker, what: str, files: Sequence[CountedFile]) -> Iterator[Row]:
    sizes = [os.path.getsize(file.path) for file in files]
    unit = f"examples of {what}" if what in CORPORA else f"{what} read"
    with Progress(unit, total_bytes=sum(sizes)) as progress:
        for number, file in enumerate(files):
            before = sum(sizes[:number])
            for row in maker.rows_of_file(what, file):
                progress.add(bytes_done=before + file.compressed_bytes)
                yield row


def _sort(rows: Iterable[Row], sorters: Mapping[str, ExternalSorter]) -> None:
    for kind, key, payload in rows:
        sorters[kind].add(key, payload)


def _sorted(sorter: ExternalSorter, unit: str) -> Iterator[tuple[str, str]]:
    """Yield the rows of a sorter with progress, and delete them."""
    with Progress(unit, total=sorter.num_rows) as progress:
        yield from progress.counted(sorter.sorted_rows())
    sorter.close()
