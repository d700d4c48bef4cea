"""The folder that `prepare` writes with every engine: records and their report."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from convert_tf.corpora import report
from convert_tf.data.shards import record_files
from convert_tf.data.token_writer import tokenize_records
from convert_tf.storage.folders import OutputFolder

SINGLE_TEXTS = "single_texts.jsonl.zst"
_REPORT_FILES = ("report.json", "report.png")
_TOKEN_IDS = "ids"


@dataclass
class DataFolder:
    """A data folder that is being written.

    Args:
        written: folder for its files.
        scratch: folder for temporary files.
        report: content of `report.json`.
    """

    written: str
    scratch: str
    report: dict[str, Any] = field(default_factory=dict)


@contextlib.contextmanager
def open_data_folder(
    output: str, *, vocabulary: str | None, tokenize: bool, overwrite: bool, temp_dir: str = ""
) -> Iterator[DataFolder]:
    """Open a folder to write to. At the end of the block it gets its report and its name.

    Args:
        output: the data folder.
        vocabulary: a vocabulary file, for token ids.
        tokenize: whether to write token ids too.
        overwrite: whether to replace existing records in the folder.
        temp_dir: folder for temporary files; empty for the folder of the output.

    Raises:
        ValueError: if `tokenize` is set without a vocabulary; or as for `OutputFolder`.
    """
    if tokenize and vocabulary is None:
        raise ValueError(
            "--tokenize needs --vocab. Learn a vocabulary from the records first (convert-tf "
            "vocabulary); then run convert-tf tokenize on them, or this command with --vocab."
        )
    target = OutputFolder(output, data_files=_data_files, temp_dir=temp_dir, overwrite=overwrite)
    with target.open() as place:
        folder = DataFolder(written=str(place), scratch=target.scratch)
        yield folder
        report.write(folder.written, folder.report)
        if tokenize and vocabulary is not None:
            token_ids = os.path.join(folder.written, _TOKEN_IDS)
            tokenize_records(folder.written, token_ids, vocabulary=vocabulary)


def _data_files(folder: str) -> list[str]:
    others = (os.path.join(folder, name) for name in (*_REPORT_FILES, SINGLE_TEXTS, _TOKEN_IDS))
    return [*record_files(folder), *(path for path in others if os.path.exists(path))]
