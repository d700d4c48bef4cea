"""Run commands under faults: a full disk, a clock that jumps back, two writers, hostile files.

`benchmarks/attack.py` applies these attacks to each command.
"""

import os
import random
import resource
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from convert_tf.encoding.backends.onnx import with_checksum
from convert_tf.storage.checksums import CHECKSUMS_FILE

_JUMP_SECONDS = 3 * 86_400
# The time of day jumps back after some calls, as when a machine sets its clock over a network.
_CLOCK = f"""
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static long calls, start = -1;
static long jump(void) {{
  if (start < 0) start = atol(getenv("JUMP_AFTER") ? getenv("JUMP_AFTER") : "0");
  return ++calls > start ? {_JUMP_SECONDS} : 0;
}}
int clock_gettime(clockid_t id, struct timespec *t) {{
  int status = syscall(SYS_clock_gettime, id, t);
  if (id == CLOCK_REALTIME) t->tv_sec -= jump();
  return status;
}}
int gettimeofday(struct timeval *t, void *zone) {{
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  t->tv_sec = now.tv_sec;
  t->tv_usec = now.tv_nsec / 1000;
  return 0;
}}
time_t time(time_t *t) {{
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (t) *t = now.tv_sec;
  return now.tv_sec;
}}
"""


class Target(NamedTuple):
    """A command, the path of its output, and a function that reads the output as an array."""

    command: list[str]
    path: Path
    read: Callable[[], Any]


def largest_file(path: Path) -> int:
    """Return the size in bytes of an output's largest file."""
    files = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
    return max(each.stat().st_size for each in files)


def _removed(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _ended(command: list[str], **options: Any) -> tuple[int, str]:
    done = subprocess.run(command, capture_output=True, text=True, **options)
    return done.returncode, done.stderr


def _fault_of_words(said: str) -> str:
    """Return what is wrong with the error of a failed command, or `""` if nothing is."""
    last = said.strip().splitlines()[-1:] or [""]
    if "Traceback" in said or not last[0].startswith("convert-tf"):
        return f"said {said[-300:]!r}"
    return "" if len(last[0]) < 1_000 else f"wrote an error of {len(last[0])} characters"


def attack_with_a_full_disk(
    targets: Mapping[str, Target], number: int, rng: random.Random, left: Callable[[Path], list]
) -> tuple[dict[str, Any], list[str]]:
    """Run commands while no file can grow beyond a share of their largest file.

    Args:
      targets: the commands by name. Their outputs must exist.
      number: number of runs per command.
      rng: draws the shares.
      left: lists temporary files in the folder of an output.

    Returns:
      Counts by name, and descriptions of faults.
    """
    faults, stopped = [], 0
    for name, (command, path, read) in targets.items():
        expected, size = read(), largest_file(path)
        for _ in range(number):
            _removed(path)
            limit = int(size * rng.choice((0.0, rng.random(), 0.99)))

            def limited(limit: int = limit) -> None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

            code, said = _ended(command, preexec_fn=limited)
            stopped += code != 0
            if code == 0:
                faults.append(
                    f"{name} succeeded although files were limited to {limit} of {size} bytes"
                )
            elif words := _fault_of_words(said):
                faults.append(
                    f"{name} at {limit} of {size} bytes ended with status {code} and {words}"
                )
            if path.exists():
                faults.append(f"{name} at {limit} of {size} bytes left {path.name}")
            faults += [f"{name} left {each}" for each in left(path.parent)]
        code, said = _ended(command)
        if code or not np.array_equal(read(), expected):
            faults.append(f"{name} has changed after the disk had room again: {said[-200:]!r}")
    return {"full disks": stopped}, faults


def attack_with_the_clock(
    targets: Mapping[str, Target], folder: Path, rng: random.Random
) -> tuple[dict[str, Any], list[str]]:
    """Run commands while the time of day jumps back by three days at a random call.

    Returns:
      Counts by name, and descriptions of faults.
    """
    if not shutil.which("cc"):
        return {"clocks that jumped back (no C compiler)": 0}, []
    source, library = folder / "clock.c", folder / "clock.so"
    source.write_text(_CLOCK)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    faults = []
    for name, (command, _, read) in targets.items():
        expected = read()
        jump = {"LD_PRELOAD": str(library), "JUMP_AFTER": str(rng.choice((0, 20, 200)))}
        code, said = _ended([*command, "--overwrite"], env={**os.environ, **jump})
        if code:
            faults.append(f"{name} ended with status {code} when the clock jumped: {said[-300:]!r}")
        elif not np.array_equal(read(), expected):
            faults.append(f"{name} has changed after the clock jumped")
    return {"clocks that jumped back": len(targets)}, faults


def attack_with_two_writers(
    targets: Mapping[str, Target], left: Callable[[Path], list]
) -> tuple[dict[str, Any], list[str]]:
    """Run each command in two processes at once, with the same output.

    Returns:
      Counts by name, and descriptions of faults.
    """
    faults, refused = [], 0
    for name, (command, path, read) in targets.items():
        expected = read()
        both = [
            subprocess.Popen(
                [*command, "--overwrite"],
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            )
            for _ in range(2)
        ]  # fmt: skip
        ends = [(process.communicate()[1], process.returncode) for process in both]
        refused += sum(code != 0 for _, code in ends)
        if all(code for _, code in ends):
            faults.append(f"neither of two writers wrote {name}: {ends[0][0][-300:]!r}")
        for said, code in ends:
            if code and (words := _fault_of_words(said)):
                faults.append(f"one of two writers of {name} ended with status {code} and {words}")
        if not np.array_equal(read(), expected):
            faults.append(f"{name} has changed after two writers")
        faults += [f"two writers of {name} left {each}" for each in left(path.parent)]
    return {"pairs of writers": len(targets), "writers that were refused": refused}, faults


def hostile_files(targets: Mapping[str, Target], secret: Path) -> dict[str, tuple[str, bytes]]:
    """Return hostile versions of the files of targets.

    Args:
      targets: any of `module`, `onnx`, `index` and `intent`.
      secret: a file that no model may open.

    Returns:
      By description: the target, followed by the path of the file in its folder, and the bytes.
    """
    import onnx

    found: dict[str, tuple[str, bytes]] = {}

    def changed(kind: str) -> onnx.ModelProto:
        model = onnx.load(targets["onnx"].path)
        del model.metadata_props[:]
        model.metadata_props.extend(
            each for each in onnx.load(targets["onnx"].path).metadata_props if each.key != "sha256"
        )
        facts = next(each for each in model.metadata_props if each.key == "convert_tf")
        largest = max(model.graph.initializer, key=lambda each: len(each.raw_data))
        if kind in ("an absolute path", "a path upwards"):
            path = secret if kind == "an absolute path" else Path("..", "..", secret.name)
            largest.ClearField("raw_data")
            largest.data_location = onnx.TensorProto.EXTERNAL
            largest.external_data.add(key="location", value=str(path))
        elif kind == "a size without data":
            del largest.dims[:]
            largest.dims.extend([2**31, 2**31])
        elif kind == "a negative size":
            largest.dims[0] = -1
        elif kind == "a cycle":
            model.graph.node[0].input[0] = model.graph.node[-1].output[0]
        elif kind == "an unknown op":
            model.graph.node[0].op_type = "Shell"
        elif kind == "facts of a terabyte":
            facts.value = facts.value.replace("{", '{"vocab_size": 1099511627776, ', 1)
        return model

    kinds = (
        "an absolute path", "a path upwards", "a size without data", "a negative size", "a cycle",
        "an unknown op", "facts of a terabyte",
    )  # fmt: skip
    for kind in kinds if "onnx" in targets else ():
        found[f"onnx with {kind}"] = ("onnx", with_checksum(changed(kind).SerializeToString()))
    huge = b'{"version": 1, "dim": 1099511627776, "size": 1099511627776, "dtype": "float32"}'
    for target in sorted(targets.keys() - {"onnx"}):
        files = [each for each in targets[target].path.rglob("*") if each.is_file()]
        for file in files:
            name = str(file.relative_to(targets[target].path))
            if file.suffix == ".json":
                found[f"{target}: {name} of a terabyte"] = (f"{target}/{name}", huge)
                found[f"{target}: {name} nested"] = (f"{target}/{name}", b"[" * 100_000)
            elif file.suffix in (".npy", ".npz"):
                found[f"{target}: {name} pickled"] = (
                    f"{target}/{name}", b"\x93NUMPY\x01\x00v\x00{'descr': '|O', 'fortran_order': "
                    b"False, 'shape': (1,), }".ljust(128) + b"cos\nsystem\n(S'true'\ntR.",
                )  # fmt: skip
                found[f"{target}: {name} of a terabyte"] = (
                    f"{target}/{name}", b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': "
                    b"False, 'shape': (1099511627776,), }".ljust(127) + b"\n",
                )  # fmt: skip
    return found


def attack_with_hostile_files(
    targets: Mapping[str, Target], folder: Path
) -> tuple[dict[str, Any], list[str]]:
    """Read models that were changed to open other files or to allocate much memory.

    Returns:
      Counts by name, and descriptions of faults.
    """
    secret = folder / "secret"
    secret.write_bytes(b"secret")
    faults, refused = [], 0
    found = hostile_files(targets, secret)
    for kind, (place, content) in found.items():
        target, _, name = place.partition("/")
        root = targets[target].path
        file = root / name if name else root
        kept = {each: each.read_bytes() for each in (file, root / CHECKSUMS_FILE)
                if each.is_file()}  # fmt: skip
        expected = targets[target].read()
        try:
            file.write_bytes(content)
            if root.is_dir():
                (root / CHECKSUMS_FILE).unlink(missing_ok=True)
            try:
                if not np.array_equal(targets[target].read(), expected):
                    faults.append(f"{kind} was read as something else")
            except (ValueError, OSError) as error:
                refused += 1
                if "\n" in str(error) or len(str(error)) > 1_000:
                    faults.append(f"{kind} was refused with {str(error)[:200]!r}")
            except Exception as error:  # any other exception is a fault
                faults.append(f"{kind}: {type(error).__name__}: {str(error)[:200]}")
        finally:
            for each, before in kept.items():
                each.write_bytes(before)
    return {"hostile files": len(found), "hostile files that were refused": refused}, faults
