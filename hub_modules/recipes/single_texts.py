"""Write the single texts that encoders are trained on, without the intents that judge them.

    python hub_modules/recipes/single_texts.py 'utterances/*.jsonl.zst' work/data work/texts

A tenth of the intents of two sources is left out, for `judge_intents.py`, and so are equal texts of
any other source. What `prepare --single_texts` wrote beside the records comes last.
"""

import glob
import hashlib
import json
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import zstandard

from convert_tf.storage.content import JSON
from convert_tf.storage.lines import TextLines

PREPARED = "single_texts.jsonl.zst"  # what `prepare --single_texts` writes in the folder of records
JUDGED_ON = ("rasa_bots_nlu", "small_intent_sets")


def is_left_out(row: dict[str, str]) -> bool:
    """Whether a text is of an intent that training does not see."""
    digest = hashlib.md5(f"{row.get('source', '')}|{row.get('label', '')}".encode()).hexdigest()
    return int(digest, 16) % 10 == 0


def rows_of(path: Path) -> Iterator[dict[str, str]]:
    return (json.loads(line) for line in TextLines(path, formats=[JSON]) if line.strip())


def write(path: Path, rows: Iterable[dict[str, str]]) -> None:
    number = 0
    with open(path, "wb") as file, zstandard.ZstdCompressor().stream_writer(file) as writer:
        for number, row in enumerate(rows, start=1):
            writer.write(json.dumps(row).encode() + b"\n")
    print(f"{path.name}: {number:,} texts")


def main(utterances: str, records: str, output: str) -> None:
    paths = [Path(path) for path in sorted(glob.glob(utterances))]
    if not paths:
        raise ValueError(f"No file matches {utterances!r}. Put the pattern in quotes.")
    judged = {
        row["text"].strip()
        for path in paths
        if path.name.split(".")[0] in JUDGED_ON
        for row in rows_of(path)
        if is_left_out(row)
    }
    folder = Path(f"{output}.partial")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for path in (*paths, Path(records) / PREPARED):
        rows = (row for row in rows_of(path) if row["text"].strip() not in judged)
        write(folder / f"{path.name.split('.')[0]}.jsonl.zst", rows)
    folder.rename(output)


if __name__ == "__main__":
    main(*sys.argv[1:])
