"""Write the single texts for training encoders, without the intents on which they are evaluated.

    python hub_modules/recipes/single_texts.py 'utterances/*.jsonl.zst' work/data work/texts
    python hub_modules/recipes/single_texts.py 'utterances/*.jsonl.zst' work/data work/some_texts \
        captions=0.2,single_texts=0.01

Texts from sources that must not be used commercially are left out. A tenth of the intents in two
files are left out, because `judge_intents.py` evaluates encoders on them. Texts that equal one of
theirs, ignoring case, are left out of all other files too. The second argument is the folder of
records; the single texts that `prepare --single_texts` wrote there come last. The optional last
argument sets the share of the texts that is drawn at random from a file.
"""

import glob
import hashlib
import json
import random
import re
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import zstandard

from convert_tf.readers.files import TableFile, read_lines

PREPARED = "single_texts.jsonl.zst"  # written by `prepare --single_texts` to the folder of records
JUDGED_ON = ("rasa_bots_nlu", "small_intent_sets")
# The terms of Quora and Twitter, CC BY-NC, CC BY-NC-ND, and mails.
_NOT_COMMERCIAL = re.compile(r"quora|qqp|xnli|twitter|tweet|leyzer|enron|email_intent|ud_gum")


def is_left_out(row: dict[str, str]) -> bool:
    """Return whether the intent of a text is left out of training."""
    digest = hashlib.md5(f"{row.get('source', '')}|{row.get('label', '')}".encode()).hexdigest()
    return int(digest, 16) % 10 == 0


def is_commercial(row: dict[str, str]) -> bool:
    """Return whether a text may be used commercially, judging by its source."""
    return not _NOT_COMMERCIAL.search(row.get("source", ""))


def without_case(text: str) -> str:
    """Return a text in lower case and without outer white space, to compare it with others."""
    return text.strip().lower()


def rows_of(path: Path) -> Iterator[dict[str, str]]:
    return map(json.loads, read_lines(TableFile(str(path))))


def files_by_name(paths: Iterable[Path]) -> dict[str, Path]:
    """Return the files by their names up to the first dot, in the given order.

    Raises:
      ValueError: if several files have the same name up to the first dot.
    """
    files: dict[str, list[Path]] = {}
    for path in paths:
        files.setdefault(path.name.split(".")[0], []).append(path)
    if duplicates := [str(path) for same in files.values() if len(same) > 1 for path in same]:
        raise ValueError(
            f"Some files have the same name up to the first dot: {', '.join(duplicates)}. "
            "Rename them."
        )
    return {name: path for name, (path,) in files.items()}


def write(path: Path, rows: Iterable[dict[str, str]]) -> None:
    number = 0
    with open(path, "wb") as file, zstandard.ZstdCompressor().stream_writer(file) as writer:
        for number, row in enumerate(rows, start=1):
            writer.write(json.dumps(row).encode() + b"\n")
    print(f"{path.name}: {number:,} texts")


def drawn(rows: Iterable[dict[str, str]], share: float) -> list[dict[str, str]]:
    """Return a random share of the rows, in random order; every call draws the same rows."""
    every = list(rows)
    random.Random(5).shuffle(every)
    return every[: round(len(every) * share)]


def main(utterances: str, records: str, output: str, shares: str = "") -> None:
    paths = [Path(path) for path in sorted(glob.glob(utterances))]
    if not paths:
        raise ValueError(f"No file matches {utterances!r}. Put the pattern in quotes.")
    paths.append(Path(records) / PREPARED)
    share_of = {
        name: float(share)
        for name, share in (each.split("=") for each in shares.split(",") if each)
    }
    files = files_by_name(paths)
    if unknown := sorted(share_of.keys() - files.keys()):
        raise ValueError(f"No file is called {', '.join(unknown)}. Correct the shares.")
    judged = {
        without_case(row["text"])
        for name in JUDGED_ON
        if name in files
        for row in rows_of(files[name])
        if is_left_out(row)
    }
    folder = Path(f"{output}.partial")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, path in files.items():
        usable = filter(is_commercial, rows_of(path))
        rows = (row for row in usable if without_case(row["text"]) not in judged)
        if name in share_of:
            rows = drawn(rows, share_of[name])
        write(folder / f"{name}.jsonl.zst", rows)
    folder.rename(output)


if __name__ == "__main__":
    main(*sys.argv[1:])
