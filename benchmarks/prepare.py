"""Measure time and memory of `convert-tf prepare` for dumps of growing size.

```
python benchmarks/prepare.py --input 'dumps/RC_*.zst' --submissions 'dumps/RS_*.zst' \
    --folder /tmp/scaling --copies 1,10
```

The script repeats the dumps under new ids, so that each copy has separate threads. It prepares each
repeated dump in a separate process. It prints seconds, comments per second, peak memory and
temporary disk space, and the ratios of time and memory to those of the first number of copies.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import zstandard
from absl import app, flags

from convert_tf.corpora import dumps
from convert_tf.storage.lines import file_state

_INPUT = flags.DEFINE_multi_string("input", None, "Dumps of comments.", required=True)
_SUBMISSIONS = flags.DEFINE_multi_string("submissions", [], "Dumps of submissions.")
_FOLDER = flags.DEFINE_string("folder", None, "Folder for dumps and data.", required=True)
_COPIES = flags.DEFINE_list("copies", ["1", "10"], "Numbers of copies of the dumps.")
_OPTIONS = flags.DEFINE_list("options", [], "More flags for prepare, such as --preset=clean.")
_IDS = ("id", "link_id", "parent_id")
RSS_UNIT = 1 if sys.platform == "darwin" else 1024  # bytes in a unit of `ru_maxrss`


def repeat_dumps(paths: list[str], output: Path, copies: int) -> None:
    """Write all objects of dumps to a zstd file, `copies` times. Each copy's ids get a suffix."""
    partial = output.with_suffix(".tmp")
    with open(partial, "wb") as file, zstandard.ZstdCompressor(3).stream_writer(file) as writer:
        for copy in range(copies):
            for path in paths:
                for fields in dumps.read_objects(dumps.CountedFile(path)):
                    if copy:
                        for name in _IDS:
                            if isinstance(fields.get(name), str):
                                fields[name] = re.sub(r"$", f"x{copy}", fields[name], count=1)
                    writer.write(json.dumps(fields).encode() + b"\n")
    partial.rename(output)


def check_inputs(folder: Path, inputs: list[str], submissions: list[str]) -> None:
    """Exit with an error if a folder has repeated dumps of other files.

    The sizes, times and first bytes of these files are stored in the folder, for later calls.
    """
    record = folder / "inputs.json"
    states = json.dumps([[file_state(path) for path in paths] for paths in (inputs, submissions)])
    if record.is_file() and record.read_text() == states:
        return
    if dumps_there := sorted(path.name for path in folder.glob("R[CS]_*.zst")):
        sys.exit(
            f"prepare.py: {folder} has {', '.join(dumps_there)}, made from other or unknown files. "
            "Choose another --folder, or remove them."
        )
    record.write_text(states)


def folder_bytes(folder: Path) -> int:
    """Return the bytes of all files below a folder, which may change meanwhile."""
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(root, name)).st_size
            except FileNotFoundError:
                continue
    return total


def measure(command: list[str], temporary: Path) -> dict[str, float]:
    """Run a command; return its seconds, its peak memory, and the peak size of a folder."""
    largest = 0
    started = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        done = threading.Event()

        def watch() -> None:
            nonlocal largest
            while not done.wait(1.0):
                largest = max(largest, folder_bytes(temporary))

        watcher = threading.Thread(target=watch)
        watcher.start()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        done.set()
        watcher.join()
    if process.returncode:
        sys.exit(f"{' '.join(command)} failed")
    return {
        "seconds": time.monotonic() - started,
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "peak_gib": usage.ru_maxrss * RSS_UNIT / 2**30,
        "disk_gb": largest / 1e9,
    }


def main(argv: list[str]) -> None:
    folder = Path(_FOLDER.value)
    folder.mkdir(parents=True, exist_ok=True)
    inputs = dumps.find_files(_INPUT.value)
    submissions = dumps.find_files(_SUBMISSIONS.value)
    check_inputs(folder, inputs, submissions)
    rows = []
    for copies in map(int, _COPIES.value):
        comments = folder / f"RC_{copies}.zst"
        titles = folder / f"RS_{copies}.zst"
        for sources, target in ((inputs, comments), (submissions, titles)):
            if not target.exists():
                repeat_dumps(sources, target, copies)
        output, temporary = folder / f"data_{copies}", folder / f"temp_{copies}"
        shutil.rmtree(output, ignore_errors=True)
        command = [sys.executable, "-m", "convert_tf", "prepare", "--input", str(comments)]
        command += ["--submissions", str(titles), "--output", str(output)]
        command += ["--temp_dir", str(temporary), *_OPTIONS.value]
        figures = measure(command, temporary)
        report = json.loads((output / "report.json").read_text())
        rows.append((copies, report["threads"]["comments"], figures))
    print("| copies | comments | seconds | comments/s | CPU s | peak GiB | temporary GB |")
    print("|---|---|---|---|---|---|---|")
    for copies, number, figures in rows:
        print(
            f"| {copies} | {number:,} | {figures['seconds']:.1f} | "
            f"{number / figures['seconds']:,.0f} | {figures['cpu_seconds']:.1f} | "
            f"{figures['peak_gib']:.2f} | {figures['disk_gb']:.2f} |"
        )
    first = rows[0][2]
    for copies, _, figures in rows[1:]:
        print(
            f"{copies} copies compared with {rows[0][0]}: "
            f"time × {figures['seconds'] / first['seconds']:.1f}, "
            f"memory × {figures['peak_gib'] / first['peak_gib']:.2f}"
        )


if __name__ == "__main__":
    app.run(main)
