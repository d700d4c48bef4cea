"""Test modules in real third-party programs, each in its own environment with old versions.

`make test-clients` runs all tests. For one module and some clients:

    python tests/clients/real/run.py --encoder hub_modules/convert_small/3 --only rasa_3.6,whatlies

Environments are created once, under `.clients/`, with the newest installed patch release of each
Python. Clients without a suitable Python are reported and skipped. The environments take 5 GB of
downloads and 12 GB of disk space. The script prints the Markdown table of `docs/deployment.md` and
the failures. Its exit status is the number of failures.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
MODULES = ("convert_small", "convert", "convert_multi_context")
TEXTS = [
    "how do I reset my password?",
    "where is my card? It's been 3 weeks!",
    "hello   there  ",
    " lead",
    "a man is playing a guitar on stage in front of people",
    "what did you have for dinner?",
    "the parcel came late, again...",
    "WHY DOES IT NOT WORK",
]


class Client(NamedTuple):
    """A third-party program.

    Attributes:
      requirements: name of its requirements file and of its environment.
      python: the Python version that it needs.
      probes: scripts with options; `{vectors}` is a file of expected vectors. The probe of Hugging
        Face programs opens an exported folder instead of the module; `{kinds}` are its vectors.
    """

    requirements: str
    python: str
    probes: tuple[tuple[str, ...], ...]


_HUGGINGFACE = "huggingface_probe.py"
_PROGRAMS = (
    "sentence-transformers",
    "SetFit",
    "fastembed",
    "mteb",
    "LangChain",
    "LlamaIndex",
    "Haystack",
    "KeyBERT",
    "BERTopic",
    "txtai",
)
_SIGNATURES = ("module_probe.py", "{vectors}")
_TRAINED = ("keras_probe.py", "--train")
CLIENTS = (
    Client("tensorflow_2.6", "3.8", (_SIGNATURES,)),
    Client("tensorflow_2.8", "3.8", (_SIGNATURES, ("keras_probe.py",))),
    Client("tensorflow_2.12", "3.10", (_SIGNATURES, _TRAINED)),
    Client("tensorflow_2.15", "3.11", (_SIGNATURES, _TRAINED, ("litert_probe.py", "{vectors}"))),
    Client("rasa_2.8", "3.8", (("rasa_probe.py",),)),
    Client("rasa_3.6", "3.10", (("rasa_probe.py",), ("nlu_probe.py",))),
    Client("whatlies", "3.8", (_SIGNATURES, ("whatlies_probe.py",))),
    Client("huggingface", "3.11", tuple((_HUGGINGFACE, "{kinds}", name) for name in _PROGRAMS)),
    Client("huggingface_onnx", "3.11", ((_HUGGINGFACE, "{kinds}", "sentence-transformers, ONNX"),)),
)


def python_of(version: str) -> str | None:
    """Return the newest installed Python of a version, on the path or under pyenv."""
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    kept = sorted(
        versions.glob(f"{version}.*/bin/python"), key=lambda path: int(path.parts[-3].split(".")[2])
    )
    return str(kept[-1]) if kept else shutil.which(f"python{version}")


def environment(client: Client, folder: Path) -> Path | None:
    """Return the interpreter of a client's environment, which is created if it does not exist."""
    place = folder / client.requirements
    python, whole = place / "bin" / "python", place / ".whole"
    if whole.exists():
        return python
    base = python_of(client.python)
    if base is None:
        return None
    shutil.rmtree(place, ignore_errors=True)
    pins = HERE / "requirements" / f"{client.requirements}.txt"
    pip = [str(python), "-m", "pip", "install", "--quiet"]
    subprocess.run([base, "-m", "venv", str(place)], check=True)
    subprocess.run([*pip, "--upgrade", "pip<25", "wheel", "setuptools<70"], check=True)
    subprocess.run([*pip, "--no-cache-dir", "--requirement", str(pins)], check=True)
    whole.touch()
    return python


def ran(command: list[str]) -> tuple[dict[str, object] | None, str]:
    """Return the last facts that a probe printed, or None, and the end of its output."""
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with tempfile.TemporaryDirectory() as folder:  # this folder is not on the project's path
        done = subprocess.run(command, cwd=folder, env=clean, capture_output=True, text=True)
    lines = done.stdout.strip().splitlines()
    return (json.loads(lines[-1]) if done.returncode == 0 else None), (done.stdout + done.stderr)


def write_huggingface(module: str, folder: Path) -> str:
    """Export a module as a folder, and write the vectors that programs must get from it.

    Returns:
      The `.npz` with the vectors. The folder has the same name without the suffix.
    """
    from convert_tf import SentenceEncoder, export_model

    output = folder / f"huggingface_{len(os.listdir(folder))}"
    export_model(module, output, format="huggingface")
    found = {"texts": np.array(TEXTS)}
    for bits in (32, 8):
        encoder = SentenceEncoder(export_model(module, f"{output}_{bits}.onnx", network_bits=bits))
        found[f"default_{bits}"] = encoder.encode(TEXTS)
        if bits == 32:
            found["default"] = found["default_32"]
            found["context"] = encoder.encode_contexts(TEXTS)
            found["response"] = encoder.encode_responses(TEXTS)
            found["similarity"] = encoder.encode_similarity(TEXTS)
            found["reduced"] = encoder.encode_reduced(TEXTS)
    np.savez(f"{output}.npz", **found)
    return f"{output}.npz"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--encoder", action="append", help="folder; the released ones by default")
    parser.add_argument("--environments", default=str(ROOT / ".clients"))
    parser.add_argument("--only", help="names of clients, separated by commas")
    arguments = parser.parse_args()
    from convert_tf.checkpoints.released import RELEASED

    modules = arguments.encoder or [
        str(ROOT / "hub_modules" / name / str(RELEASED[name])) for name in MODULES
    ]
    wanted = arguments.only.split(",") if arguments.only else [c.requirements for c in CLIENTS]
    failures = 0
    print("| module | client | probe | found |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for module in map(os.path.abspath, modules):
            vectors = str(Path(folder) / f"{len(os.listdir(folder))}.npz")
            write = [str(HERE / "module_probe.py"), module, vectors, "--write"]
            facts, said = ran([sys.executable, *write])
            if facts is None:
                sys.exit(f"{module} does not load in this environment:\n{said[-3000:]}")
            place = "/".join(Path(module).parts[-2:])
            kinds = ""
            for client in (each for each in CLIENTS if each.requirements in wanted):
                is_huggingface = client.probes[0][0] == _HUGGINGFACE
                if is_huggingface and "multi_context" in place:
                    continue  # these programs cannot pass earlier turns
                if is_huggingface and not kinds:
                    kinds = write_huggingface(module, Path(folder))
                opened = kinds.removesuffix(".npz") if is_huggingface else module
                python = environment(client, Path(arguments.environments).absolute())
                for script, *options in client.probes:
                    values = {"{vectors}": vectors, "{kinds}": kinds}
                    options = [values.get(option, option) for option in options]
                    row = f"| {place} | {client.requirements} | {script} {' '.join(options[1:])}"
                    if python is None:
                        print(f"{row} | not run: no Python {client.python} |")
                        continue
                    facts, said = ran([str(python), str(HERE / script), opened, *options])
                    shown = ", ".join(f"{k} {v}" for k, v in (facts or {"FAILED": ""}).items())
                    print(f"{row} | {shown} |", flush=True)
                    if facts is None:
                        failures += 1
                        print(said[-3000:], file=sys.stderr)
    return failures


if __name__ == "__main__":
    sys.exit(main())
