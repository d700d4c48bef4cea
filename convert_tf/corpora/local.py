"""Prepare data on one machine, from dumps and other corpora to a data folder.

An external sort brings the comments of the dumps together by thread. A second sort brings examples
into the order of the shards: examples of threads, and of corpora with whole conversations. Memory
holds one thread, not the dumps.
"""

import contextlib
import functools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence

from convert_tf.corpora import data_folder
from convert_tf.corpora.data_folder import Preparation
from convert_tf.corpora.dumps import CountedFile
from convert_tf.corpora.registry import CORPORA
from convert_tf.corpora.rows import EXAMPLES, KINDS, PAIRS, TEXTS, TURNS, Output, Row, RowMaker
from convert_tf.corpora.sorting import ExternalSorter
from convert_tf.data import records
from convert_tf.storage.progress import Progress


def _sort_on_disk(run: Preparation) -> Output:
    """Do the work of a run (`data_folder.Engine`)."""
    maker, options = run.maker, run.options
    with contextlib.ExitStack() as stack:
        sorters = {
            kind: stack.enter_context(
                ExternalSorter(run.scratch, name=kind, memory_limit=options.memory_limit)
            )
            for kind in KINDS
        }
        for what, paths in run.paths.items():
            run.files[what] = [CountedFile(path, bad_lines=run.bad_lines) for path in paths]
            _sort(_rows_of_files(maker, what, run.files[what]), sorters)
        _sort(maker.rows_of_threads(_sorted(sorters[TURNS], "turns in threads")), sorters)
        _sort(maker.unique_pairs(_sorted(sorters[PAIRS], "pairs compared")), sorters)
        written = Output(num_train_shards=options.num_shards["train"])
        records.write_shards(
            run.folder,
            written.examples_of(_sorted(sorters[EXAMPLES], "examples written")),
            num_shards=options.num_shards,
        )
        run.write_single_texts(written.lines_of(_sorted(sorters[TEXTS], "single texts written")))
    return written


prepare = functools.partial(data_folder.prepare, engine=_sort_on_disk)


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
