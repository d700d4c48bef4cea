"""Write a release: wheels, module archives, .onnx files, the web page and an npm package.

`make release` runs this script. To write the files only, run:

    python scripts/release.py --output release/

With `make release TAG=v0.1.0`, the version and the changelog must match the tag. The folder also
gets `SHA256SUMS` of all its files. To use the release, put the folder on a web server and set
`CONVERT_TF_MODULES_URL` to its address. Archives are reproducible: the same files give the same
bytes.

The web page and the npm package come from `make web`. If that has not been run, they are left out.
"""

import argparse
import gzip
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from convert_tf import __version__
from convert_tf.checkpoints.released import (
    ALL_RELEASES,
    MODULES_PACKAGE,
    ONNX_SUFFIX,
    RANKER_RELEASES,
    RELEASED,
)
from convert_tf.export.onnx.writing import export_onnx
from convert_tf.service.page import BUILT_PAGE, PAGE_ARCHIVE, missing_files
from convert_tf.storage.checksums import file_checksum
from convert_tf.storage.downloads import ARCHIVE_SUFFIX, SUMS_FILE
from convert_tf.storage.files import whole_file, write_file

ROOT = Path(__file__).resolve().parents[1]
MODULES = ROOT / "hub_modules"
WEB = ROOT / "web"
IN_WHEEL = ("convert_small", "convert")
IN_WHEEL_AS_ONNX = "convert"  # for installations without TensorFlow
MAX_WHEEL_BYTES = 100_000_000


def write_archive(folder: Path, path: Path) -> None:
    """Write the files of a folder as `.tar.gz`. The same files always give the same bytes."""

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.mtime = entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        entry.mode = 0o755 if entry.isdir() else 0o644
        return entry

    with (
        whole_file(path) as temporary,
        open(temporary, "wb") as file,
        gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0, compresslevel=6) as packed,
        tarfile.open(fileobj=packed, mode="w") as tar,
    ):
        for each in sorted(folder.rglob("*")):
            tar.add(each, each.relative_to(folder).as_posix(), recursive=False, filter=plain)


def build(project: Path, output: Path, *kinds: str) -> None:
    """Build the wheel and the sdist of a project, or only `kinds`, with `python -m build`."""
    command = [sys.executable, "-m", "build", "--outdir", str(output), *kinds, str(project)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def write_modules(output: Path) -> None:
    """Write the archive of each module, and the `.onnx` file of each encoder."""
    for name, versions in ALL_RELEASES.items():
        for version in (number for number, release in versions.items() if not release.commit):
            folder = MODULES / name / str(version)
            write_archive(folder, output / f"{name}-{version}{ARCHIVE_SUFFIX}")
            if name not in RANKER_RELEASES:
                export_onnx(folder, output / f"{name}-{version}{ONNX_SUFFIX}")


def write_modules_wheel(output: Path) -> None:
    """Write the wheel with the modules `IN_WHEEL` and an `.onnx` file that `output` contains."""
    with tempfile.TemporaryDirectory() as work:
        project = Path(work) / "project"
        shutil.copytree(ROOT / "scripts" / "modules_package", project)
        shutil.copy(ROOT / "LICENSE", project)
        for name in IN_WHEEL:
            version = str(RELEASED[name])
            shutil.copytree(MODULES / name / version, project / MODULES_PACKAGE / name / version)
        file = f"{IN_WHEEL_AS_ONNX}-{RELEASED[IN_WHEEL_AS_ONNX]}{ONNX_SUFFIX}"
        shutil.copy(output / file, project / MODULES_PACKAGE)
        build(project, output, "--wheel")
    (wheel,) = output.glob(f"{MODULES_PACKAGE}-*.whl")
    if wheel.stat().st_size >= MAX_WHEEL_BYTES:
        raise SystemExit(
            f"{wheel} has 100 MB or more, but the registry takes less. Leave out a module."
        )


def write_web(output: Path) -> None:
    """Write the page that `convert-tf demo` shows outside a clone, and the npm package."""
    if missing := missing_files(BUILT_PAGE):
        print(f"The page is left out: {BUILT_PAGE} has no {missing[0]}. Run make web first.")
        return
    write_archive(BUILT_PAGE, output / PAGE_ARCHIVE)
    write_npm_package(output)


def write_npm_package(output: Path) -> None:
    """Write the package for web pages and Node, which `npm install FILE` installs."""
    with tempfile.TemporaryDirectory() as work:
        project = Path(work) / "project"
        shutil.copytree(WEB / "build" / "package", project)
        for path in (
            *(WEB / "package" / name for name in ("package.json", "README.md")),
            *(BUILT_PAGE / name for name in ("model.onnx.gz", "tokenizer.json.gz")),
            ROOT / "LICENSE",
        ):
            shutil.copy(path, project)
        facts = json.loads((project / "package.json").read_text())
        write_file(project / "package.json", json.dumps({**facts, "version": __version__}))
        command = ["npm", "pack", "--silent", "--pack-destination", str(output.resolve())]
        subprocess.run(command, cwd=project, check=True, stdout=subprocess.DEVNULL)


def write_sums(output: Path) -> None:
    """Write `SHA256SUMS` of a folder's files, for `sha256sum --check`."""
    files = sorted(path for path in output.iterdir() if path.name != SUMS_FILE)
    lines = [f"{file_checksum(path)}  {path.name}\n" for path in files]
    write_file(output / SUMS_FILE, "".join(lines))


def check_tag(tag: str) -> None:
    """Check that a tag is the current version and has a dated section in the changelog.

    Raises:
      SystemExit: if it is not or has none.
    """
    if tag != f"v{__version__}":
        raise SystemExit(f"The version is {__version__}, but the tag is {tag}. Change one of them.")
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    if not re.search(
        rf"^## {re.escape(__version__)} \(\d{{4}}-\d\d-\d\d\)$", changes, re.MULTILINE
    ):
        raise SystemExit(f"CHANGELOG.md has no section '## {__version__} (YYYY-MM-DD)'.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--output", type=Path, required=True, help="folder to write; existing content is deleted"
    )
    parser.add_argument("--tag", help="tag of the release, such as v0.1.0")
    arguments = parser.parse_args()
    if arguments.tag:
        check_tag(arguments.tag)
    output = arguments.output
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    build(ROOT, output)
    write_modules(output)
    write_modules_wheel(output)
    write_web(output)
    write_sums(output)
    for path in sorted(output.iterdir()):
        print(f"{path.stat().st_size / 1e6:8.1f} MB  {path.name}")


if __name__ == "__main__":
    main()
