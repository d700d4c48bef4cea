"""Install a release in empty environments outside the repository and try it.

    python scripts/try_release.py --release release/

Each of these environments is tried and then removed:

- `light`: the wheel without its dependencies, with numpy and onnxruntime only; then with absl-py
  for the commands and the page;
- `base`: the wheel with its dependencies, without TensorFlow;
- `whole`: the wheel with TensorFlow, a service and a training run;
- `source`: the sdist;
- `node`: the npm package, under Node; skipped if the release has none.

The script downloads 1 GB, or less if pip has a cache. `--only light` tries one environment, and
`--python python3.12` uses another Python.
"""

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = "page-*.tar.gz"
NPM_PACKAGE = "convert-tf-*.tgz"

_USE = """
import sys
from pathlib import Path
import numpy as np
import convert_tf
from convert_tf import IntentClassifier, SentenceEncoder, module_path

package = Path(convert_tf.__file__).parent
assert "site-packages" in package.parts, package
assert (package / "py.typed").is_file()
(facts,) = package.parent.glob("convert_tf-*.dist-info")
assert [*facts.rglob("LICENSE")], facts
"""
_USE_MODULES = """
import tensorflow_hub as hub, tensorflow_text
assert "site-packages" in module_path("convert")
r = hub.load(module_path("convert"))(["where is my card?"]).numpy()
encoder = SentenceEncoder("convert", backend="tensorflow", compute_dtype="float32")
np.testing.assert_allclose(encoder.encode(["where is my card?"]), r, rtol=1e-3, atol=1e-4)
texts = ["where is my parcel?", "has my order left?", "I want my money back", "refund, please"]
classifier = IntentClassifier(encoder).fit(texts, ["delivery", "delivery", "refund", "refund"])
assert classifier.predict(["my package never came"])[0] == "delivery"
"""
_USE_ONNX = """
encoder = SentenceEncoder(sys.argv[1])
(best, _), = encoder.rank("How do I reset my password?",
    ["I had pasta.", "You can change it under Settings, Security."], top_k=1)
assert best.startswith("You can change it"), best
try:
    import tensorflow
except ImportError:
    pass
else:
    raise SystemExit("TensorFlow is installed, but must not be")
"""
_USE_IN_NODE = """
import { load } from "convert-tf";

const encoder = await load();
const dot = (a, b) => a.reduce((sum, number, i) => sum + number * b[i], 0);
const [context] = await encoder.encode(["How do I reset my password?"], "context");
const responses = ["I had pasta.", "You can change it under Settings, Security."];
const scores = (await encoder.encode(responses, "response")).map((each) => dot(context, each));
if (!(scores[1] > scores[0])) throw new Error(`scores ${scores}`);
"""


class Environment:
    """A new virtual environment, whose folder is the working directory of its commands.

    Args:
      folder: folder for the environment, outside the repository.
      python: Python to create the environment with.
    """

    def __init__(self, folder: Path, python: str):
        self.folder = folder
        subprocess.run([python, "-m", "venv", str(folder / "venv")], check=True)
        self.bin = folder / "venv" / "bin"

    def run(self, *command: object, fails: str = "") -> str:
        """Run a command and return its standard output.

        Args:
          *command: the program and its arguments.
          fails: if it is not empty, the command must fail with a one-line error that contains it.

        Raises:
          SystemExit: if the command fails, or does not fail as it must.
        """
        done = subprocess.run(
            [str(part) for part in command], cwd=self.folder, env=self._variables(), text=True,
            capture_output=True,
        )  # fmt: skip
        said = done.stderr.strip().splitlines()
        if fails and (done.returncode == 0 or fails not in said[-1] or len(said) > 1):
            raise SystemExit(f"{command} should fail with {fails!r}, but said {done.stderr}")
        if not fails and done.returncode:
            raise SystemExit(f"{command}: {done.stdout}{done.stderr}")
        return done.stdout

    @contextlib.contextmanager
    def serving(self, *command: object, **variables: str) -> Iterator[str]:
        """Run a command while the block runs; yield the address that it prints."""
        process = subprocess.Popen(
            [str(part) for part in command], cwd=self.folder, env=self._variables() | variables,
            text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            said = ""
            for line in process.stdout:
                said += line
                if match := re.search(r"http://[\w.:]+", line):
                    yield match[0]
                    break
            else:
                raise SystemExit(f"{command}: {said}")
        finally:
            process.terminate()
            process.wait(30)
            process.stdout.close()

    def _variables(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
        return kept | {"PATH": f"{self.bin}:{kept['PATH']}", "CUDA_VISIBLE_DEVICES": "-1"}

    def install(self, *what: object) -> None:
        """Install packages with pip."""
        self.run(self.bin / "python", "-m", "pip", "install", "--quiet", *what)

    def python(self, statements: str, *arguments: object) -> str:
        """Run Python statements and return their standard output."""
        return self.run(self.bin / "python", "-c", statements, *arguments)


def one(release: Path, pattern: str) -> Path:
    """Return the only file of a release that matches a pattern."""
    (found,) = release.glob(pattern)
    return found


def _use_all(place: Environment, release: Path) -> None:
    place.install(one(release, "convert_tf_modules-*.whl"))
    place.python(_USE + _USE_MODULES)
    assert "intent train" in place.run("convert-tf", "--help")
    (place.folder / "train.csv").write_text(
        "text,label\nwhere is it?,a\nis it there?,a\npay me,b\nmoney please,b\n"
    )
    place.run("convert-tf", "intent", "train", "--encoder", "convert", "--data", "train.csv",
              "--output", "model")  # fmt: skip
    pairs = "".join(f"question {i},answer {i}\n" for i in range(600))
    (place.folder / "faq.csv").write_text(f"question,answer\n{pairs}")
    place.run("convert-tf", "prepare", "--pairs", "faq.csv", "--output", "data",
              fails="pip install 'convert_tf[data]'")  # fmt: skip


def whole(place: Environment, release: Path) -> None:
    """Try the wheel with the extra [tensorflow], then a service and training with their extras."""
    wheel = one(release, "convert_tf-*.whl")
    place.install("--constraint", ROOT / "constraints.txt", f"{wheel}[tensorflow]")
    _use_all(place, release)
    place.run("convert-tf", "serve", "--encoder", "convert_small",
              fails="pip install 'convert_tf[serve]'")  # fmt: skip
    place.install("--constraint", ROOT / "constraints.txt", f"{wheel}[train,serve]")
    with place.serving("convert-tf", "serve", "--encoder", "convert_small", "--intents", "model",
                       "--port", "0") as url:  # fmt: skip
        body = json.dumps({"texts": ["is it there?"]}).encode()
        for path, wanted in (("encode", '"dim": 1024'), ("classify", '"intent": "a"')):
            asked = urllib.request.Request(
                f"{url}/{path}", body, headers={"Content-Type": "application/json"}
            )
            said = urllib.request.urlopen(asked).read().decode()
            assert wanted in said, said[:500]
    place.run("convert-tf", "train", "--data", "faq.csv", "--init_from", "convert_small",
              "--output", "run", "--steps", "2", "--batch_size", "8", "--eval_every", "2",
              "--checkpoint_every", "2")  # fmt: skip
    place.run("convert-tf", "export", "--encoder", "run", "--output", "run.onnx")
    found = place.run("convert-tf", "index", "search", "--encoder", "run.onnx", "--candidates",
                      "faq.csv", "--queries", "question 7", "--top_k", "3")  # fmt: skip
    assert len(found.splitlines()) == 4


def source(place: Environment, release: Path) -> None:
    """Try the sdist, from which pip builds a wheel."""
    sdist = one(release, "convert_tf-*.tar.gz")
    place.install("--constraint", ROOT / "constraints.txt", f"{sdist}[tensorflow]")
    _use_all(place, release)


def light(place: Environment, release: Path) -> None:
    """Try the wheel without its dependencies, for inference with .onnx files."""
    place.install("--no-deps", one(release, "convert_tf-*.whl"))
    place.install("numpy", "onnxruntime")
    model = one(release, "convert-*.onnx")
    place.python(_USE.replace("IntentClassifier, ", "") + _USE_ONNX, model)
    place.install("absl-py")
    if [*release.glob(PAGE)]:
        address = {"CONVERT_TF_MODULES_URL": release.as_uri()}
        cache = {"CONVERT_TF_CACHE": str(place.folder / "cache")}
        with place.serving("convert-tf", "demo", "--port", "0", **address, **cache) as url:
            assert b"convert_tf" in urllib.request.urlopen(url).read()
    (place.folder / "texts.txt").write_text("where is my card?\nhello\n")
    place.run(
        "convert-tf", "embed", "--encoder", model, "--input", "texts.txt", "--output", "v.npy"
    )
    place.install("--no-deps", one(release, "convert_tf_modules-*.whl"))
    place.run("convert-tf", "embed", "--encoder", "convert", "--input", "texts.txt", "--output",
              "n.npy")  # fmt: skip
    path = place.python("import convert_tf; print(convert_tf.module_path('convert'))").strip()
    place.run("convert-tf", "embed", "--encoder", path, "--input", "texts.txt", "--output", "w.npy",
              fails="A module needs the extra [train]")  # fmt: skip


def base(place: Environment, release: Path) -> None:
    """Try the wheel with its dependencies: vectors, search and intents without TensorFlow."""
    place.install(one(release, "convert_tf-*.whl"), one(release, "convert_tf_modules-*.whl"))
    place.python(_USE.replace("IntentClassifier, ", "") + _USE_ONNX, "convert_small")
    (place.folder / "train.csv").write_text(
        "text,label\nwhere is it?,a\nis it there?,a\npay me,b\nmoney please,b\n"
    )
    texts = "where is my card?\nhello\nis it late?\ncan I pay?\nmoney back!\nwhen?\n"
    (place.folder / "texts.txt").write_text(texts)
    for command in (
        "embed --encoder convert_small --input texts.txt --output v.npy",
        "index search --encoder convert_small --candidates texts.txt --queries card --top_k 1",
        "export --encoder convert_small --output small.onnx",
        "intent train --encoder small.onnx --data train.csv --output model",
        "intent evaluate --model model --data train.csv",
        "intent predict --model model --input texts.txt",
        "intent export --model model --output intents.onnx",
        "intent discover --model model --input texts.txt --output groups --min_confidence 1 "
        "--min_size 1 --groups 2",
        "intent suggest --model model --input texts.txt --output suggested.csv --budget 1",
        "intent monitor --model model --input texts.txt --output report.json",
    ):
        place.run("convert-tf", *command.split())
    place.run("convert-tf", "train", "--data", "train.csv", "--model", "tiny", "--output", "run",
              fails="pip install 'convert_tf[train]'")  # fmt: skip


def node(place: Environment, release: Path) -> None:
    """Try the npm package under Node."""
    place.run("npm", "install", "--no-audit", "--no-fund", one(release, NPM_PACKAGE))
    assert "export" in (place.folder / "node_modules/convert-tf/package.d.ts").read_text()
    (place.folder / "use.mjs").write_text(_USE_IN_NODE)
    place.run("node", "use.mjs")


ENVIRONMENTS: tuple[Callable[[Environment, Path], None], ...] = (light, base, whole, source, node)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--release", type=Path, required=True, help="folder that release.py wrote")
    parser.add_argument("--only", choices=[each.__name__ for each in ENVIRONMENTS])
    parser.add_argument("--python", default=sys.executable, help="Python to use; default: this one")
    arguments = parser.parse_args()
    for use in ENVIRONMENTS:
        if use is node and not [*arguments.release.glob(NPM_PACKAGE)]:
            if arguments.only == "node":
                sys.exit(f"try_release.py: {arguments.release} has no npm package to try.")
            print("node: not tried, because the release has no npm package", flush=True)
            continue
        if arguments.only in (None, use.__name__):
            with tempfile.TemporaryDirectory() as folder:
                use(Environment(Path(folder), arguments.python), arguments.release.resolve())
            print(f"{use.__name__}: installs and works on {arguments.python}", flush=True)


if __name__ == "__main__":
    main()
