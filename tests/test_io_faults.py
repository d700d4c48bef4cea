"""Commands whose input or output fails at some point."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import own_environment

SCRIPT = Path(__file__).resolve().parents[1] / "benchmarks" / "io_faults.py"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        sys.platform != "linux" or not shutil.which("cc"), reason="needs Linux and a C compiler"
    ),
]

# Commands that write "out": completely, in place, and completely but with a traceback. Two resume:
# "parts" writes complete parts, and "torn_parts" takes existing ones for complete. Two move a pair
# of files back after a failure: the next run of "moves" works, that of "stuck_moves" is refused.
_COMMANDS = """
import contextlib, ctypes, fcntl, os, random, sys
from pathlib import Path
import io_faults

def write(name):
    with open(name, "w") as file:
        file.write("new")

def write_parts(is_whole):
    for part in ("a", "b"):
        if not os.path.exists(part):
            write(part + ".new" if is_whole else part)
            if is_whole:
                os.rename(part + ".new", part)

def move_both(undoes):
    names = ("one", "two")
    try:
        for name in names:
            if undoes:
                Path(name).unlink(missing_ok=True)
            elif os.path.exists(name):
                raise FileExistsError(name)
            write(name + ".new")
        for name in names:
            os.rename(name + ".new", name)
    except OSError:
        for name in names:
            Path(name + ".new").unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                os.rename(name, name + ".new")
                os.remove(name + ".new")
        raise

def call_all():
    # The names that DuckDB and HDF5 use. Python itself calls pwrite64 and others.
    system = ctypes.CDLL(None)
    file = os.open("out", os.O_RDWR | os.O_CREAT)
    system.pwrite(file, b"new", 3, ctypes.c_long(0))
    system.pread(file, ctypes.create_string_buffer(3), 3, ctypes.c_long(0))
    system.ftruncate(file, ctypes.c_long(0))
    system.fcntl(file, fcntl.F_GETFD)  # not a lock
    system.fcntl(file, fcntl.F_SETLK, ctypes.create_string_buffer(64))
    system.close(file)
    system.unlink(b"out")

def run(arguments):
    try:
        if arguments == ["call_all"]:
            call_all()
            return 0
        if arguments[0].endswith("moves"):
            move_both(arguments == ["moves"])
            return 0
        if arguments[0].endswith("parts"):
            write_parts(arguments == ["parts"])
            return 0
        write("out" if arguments == ["in_place"] else "new")
        if arguments != ["in_place"]:
            os.rename("new", "out")
    except OSError as error:
        if arguments != ["in_place"]:
            Path("new").unlink(missing_ok=True)
        if arguments == ["with_traceback"]:
            raise
        print("convert-tf:", error, file=sys.stderr)
        return 1
    return 0

attack = io_faults.Attack(Path(sys.argv[1]), run)
for name in ("whole", "in_place", "with_traceback", "parts", "torn_parts", "moves", "stuck_moves"):
    resumed = ("a", "b") if name.endswith("parts") else ()
    counts, faults = attack.attack(name, io_faults.Case(name, resumed=resumed))
    print(len(faults), counts["failed"] > 3, *faults, sep="|")
print(attack._run(Path(sys.argv[1]), "call_all", io_faults._NONE)[2])
"""


def test_planted_faults_are_found(tmp_path):
    sys.path.insert(0, str(SCRIPT.parent))
    from io_faults import compiled

    sys.path.remove(str(SCRIPT.parent))
    library = str(compiled(tmp_path))
    environment = {
        **own_environment(),
        "LD_PRELOAD": library,
        "IO_FAULTS_LIBRARY": library,
        "PYTHONPATH": os.pathsep.join([str(SCRIPT.parent), own_environment()["PYTHONPATH"]]),
    }
    done = subprocess.run(
        [sys.executable, "-c", _COMMANDS, str(tmp_path)],
        env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    whole, in_place, with_traceback, parts, torn_parts, moves, stuck_moves, last = (
        line.split("|") for line in done.stdout.splitlines()
    )
    assert whole == ["0", "True"]
    assert int(in_place[0]) > 0 and "left ['out']" in in_place[2]
    assert int(with_traceback[0]) > 0 and "Traceback" in with_traceback[2]
    assert parts == ["0", "True"]
    assert int(torn_parts[0]) > 0 and "went on to 0" in torn_parts[2]
    assert moves == ["0", "True"]
    assert [fault.split(" (")[0] for fault in stuck_moves[2:]] == [
        "stuck_moves, call 8 with EACCES from then on"
    ]
    assert last == ["cwrtleu"]


def test_a_sample_of_failures_leaves_the_old_files_or_the_new():
    done = subprocess.run(
        [sys.executable, SCRIPT, "--commands=sample", "--every=4", "--seed=5"],
        env=own_environment(), capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "failed" in done.stdout and done.stdout.endswith("faults 0\n")
