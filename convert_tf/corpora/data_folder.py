"""The folder that `prepare` writes with every engine: records and their report."""

import itertools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from convert_tf.corpora import report
from convert_tf.corpora.dumps import BadLines, CountedFile
from convert_tf.corpora.options import PrepareOptions
from convert_tf.corpora.rows import Output, RowMaker
from convert_tf.data.shards import record_files
from convert_tf.data.token_writer import tokenize_records
from convert_tf.storage.folders import OutputFolder
from convert_tf.storage.streams import zst_written

SINGLE_TEXTS = "single_texts.jsonl.zst"
_REPORT_FILES = ("report.json", "report.png")
_TOKEN_IDS = "ids"


@dataclass
class Preparation:
    """A run of `prepare`: what it reads and counts, and where it writes.

    Args:
        options: rules, sizes and limits.
        paths: the input files, by kind.
        folder: folder for records and single texts.
        scratch: folder for temporary files.

    Attributes:
        maker: makes the rows, and counts turns and threads.
        bad_lines: the unusable lines of all files.
        files: the files that were read, by kind. The engine adds them.
    """

    options: PrepareOptions
    paths: Mapping[str, Sequence[str]]
    folder: str
    scratch: str
    files: dict[str, list[CountedFile]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.maker = RowMaker(self.options)
        self.bad_lines = BadLines(limit=self.options.max_bad_lines)

    def write_single_texts(self, lines: Iterable[bytes]) -> None:
        """Write the file of single texts, if the rules of a corpus ask for it."""
        rules = self.options.rules_by_corpus(self.paths).values()
        if any(one.single_texts for one in rules):
            with zst_written(os.path.join(self.folder, SINGLE_TEXTS)) as target:
                for line in lines:
                    target.write(line)


# Reads the files, and writes records and single texts. Returns their counts.
Engine = Callable[[Preparation], Output]


def prepare(
    inputs: Sequence[str],
    output: str,
    *,
    engine: Engine,
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
        engine: does the work on one machine or on a cluster.
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
    if tokenize and vocabulary is None:
        raise ValueError(
            "--tokenize needs --vocab. Learn a vocabulary from the records first (convert-tf "
            "vocabulary); then run convert-tf tokenize on them, or this command with --vocab."
        )
    options = options or PrepareOptions()
    target = OutputFolder(
        output, data_files=_data_files, temp_dir=options.temp_dir, overwrite=overwrite
    )
    paths = {"comments": inputs, "submissions": submissions, **(corpora or {})}
    with target.open() as place:
        run = Preparation(options, paths, folder=str(place), scratch=target.scratch)
        written = engine(run)
        for file in itertools.chain(*run.files.values()):
            file.print_warnings()
        if not written.examples:
            raise ValueError(report.why_no_example(run.maker.counts, run.files))
        facts = report.assemble(run.files, run.bad_lines, run.maker, written, vocabulary)
        report.write(run.folder, facts)
        if tokenize and vocabulary is not None:
            token_ids = os.path.join(run.folder, _TOKEN_IDS)
            tokenize_records(run.folder, token_ids, vocabulary=vocabulary)
    return facts


def _data_files(folder: str) -> list[str]:
    others = (os.path.join(folder, name) for name in (*_REPORT_FILES, SINGLE_TEXTS, _TOKEN_IDS))
    return [*record_files(folder), *(path for path in others if os.path.exists(path))]
