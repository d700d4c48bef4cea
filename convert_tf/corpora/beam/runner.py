"""Dump files and other corpora to a data folder with Apache Beam: what `prepare_with_beam` does.

The same functions as on one machine, and the same bytes in the same files, on every runner that
Beam has. Without `--runner` it is Beam's in-process runner, which holds everything in memory: for
tests and small dumps. It is named here because Beam's own choice may download another one.
"""

import os
import sys
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from convert_tf.corpora import dumps
from convert_tf.corpora.beam import publish as beam_publish
from convert_tf.corpora.beam import steps as beam_steps
from convert_tf.corpora.beam.publish import REPORT
from convert_tf.corpora.options import REDDIT, PrepareOptions
from convert_tf.corpora.report import why_no_example
from convert_tf.storage.json_text import parsed_json

_HAVE_JOB_SERVER = ("FlinkRunner", "PortableRunner", "SparkRunner")
_PATTERN_CHARACTERS = frozenset("*?[]{}")


def file_sizes(patterns: Sequence[str]) -> dict[str, int]:
    """Expands file names and patterns, on any file system of Beam's, to distinct files.

    Returns:
        The size of each file in bytes, by path, sorted.

    Raises:
        ValueError: a pattern matches no file.
    """
    local = dumps.find_files([pattern for pattern in patterns if not _is_remote(pattern)])
    found = {os.path.abspath(path): os.path.getsize(path) for path in local}
    for pattern in filter(_is_remote, patterns):
        matches = FileSystems.match([pattern])[0].metadata_list
        if not matches:
            raise ValueError(
                "Every pattern must match at least one file. "
                f"Received: {pattern!r}, which matches none. Quote it and check the folder."
            )
        found.update((one.path, one.size_in_bytes) for one in matches)
    return dict(sorted(found.items()))


def _is_remote(path: str) -> bool:
    return "://" in path


def make_pipeline(beam_arguments: Sequence[str]) -> beam.Pipeline:
    """An empty pipeline with a runner.

    Args:
        beam_arguments: Beam's own options, as on its command line.

    Raises:
        ValueError: there is no such option.
    """
    options = PipelineOptions(list(beam_arguments))
    runner = options.view_as(StandardOptions).runner
    unknown = set(options.get_all_options(retain_unknown_options=True))
    unknown -= set(options.get_all_options())
    # A job server has options that are not known before it is asked.
    if unknown and (runner or "").rsplit(".", 1)[-1] not in _HAVE_JOB_SERVER:
        raise ValueError(
            "Options are those of this command or Beam's. Received: "
            f"{', '.join(f'--{name}' for name in sorted(unknown))}. See --help, and "
            "https://beam.apache.org for the options of a runner."
        )
    return beam.Pipeline(runner=None if runner else FnApiRunner(), options=options)


def prepare_with_beam(
    inputs: Sequence[str],
    output: str,
    *,
    submissions: Sequence[str] = (),
    corpora: Mapping[str, Sequence[str]] | None = None,
    options: PrepareOptions | None = None,
    vocabulary: str | None = None,
    overwrite: bool = False,
    beam_arguments: Sequence[str] = (),
) -> dict[str, Any]:
    """Writes a data folder from dump files and other corpora.

    Files and folder may be on any file system of Beam's that all workers reach. Shards get their
    names when all are written; `report.json` comes last and says that the folder is complete. A
    run that is killed leaves a folder `.beam-...` in the output.

    Args:
        inputs, output, submissions, corpora, vocabulary, overwrite: see
            `convert_tf.corpora.local.prepare`; patterns are files, too.
        options: rules, sizes and limits; `memory_limit` and `temp_dir` are not read.
        beam_arguments: Beam's own options, as on its command line.

    Returns:
        The report, as written to `report.json`; empty with `--no_wait_until_finish`, with which
        the job is left to itself.

    Raises:
        ValueError: there is data in the folder already, no example in the input, more unusable
            lines than allowed, or an option that Beam does not have.
        RuntimeError: a step failed, also after the runner repeated it.
    """
    options = options or PrepareOptions()
    pipeline = make_pipeline(beam_arguments)
    output = _checked_output(output, overwrite=overwrite)
    patterns = {"comments": inputs, "submissions": submissions, **(corpora or {})}
    files = {what: file_sizes(some) for what, some in patterns.items() if some}
    is_new = not FileSystems.exists(output)
    folder = FileSystems.join(output, f".beam-{uuid.uuid4().hex}")
    job = beam_publish.Job(
        output=output,
        folder=folder,
        files={what: list(sizes) for what, sizes in files.items()},
        input_bytes=sum(sum(sizes.values()) for sizes in files.values()),
        rules={
            name: options.rules_of(name)
            for name in dict.fromkeys(
                REDDIT if what in ("comments", "submissions") else what for what in files
            )
        },
        dev_fraction=options.dev_fraction,
        num_shards=dict(options.num_shards),
        max_line_bytes=options.max_line_bytes,
        max_bad_lines=options.max_bad_lines,
        vocabulary=_content(vocabulary) if vocabulary else None,
    )
    beam_steps.build(pipeline, job)
    FileSystems.mkdirs(folder)
    try:
        result = pipeline.run()
        if pipeline.options.view_as(StandardOptions).no_wait_until_finish:
            return {}
        result.wait_until_finish()
        return _result(job)
    except Exception:
        beam_publish.delete_folder(folder)
        if is_new and not _is_remote(output):
            os.rmdir(output)
        raise


def _checked_output(output: str, *, overwrite: bool) -> str:
    if _PATTERN_CHARACTERS & set(output):
        raise ValueError(
            f"The output's name must be no pattern. Received: {output!r}. "
            f"Use none of {' '.join(sorted(_PATTERN_CHARACTERS))} in it."
        )
    if not _is_remote(output):
        output = os.path.abspath(output)
        if os.path.exists(output) and not os.path.isdir(output):
            raise ValueError(
                f"The output is a folder. Received: {output!r}, a file. Pass another --output."
            )
    if not overwrite and beam_publish.find_records(output):
        raise ValueError(
            "The output folder must not hold records of an earlier run. "
            f"Received: {output!r}. Pass --overwrite or another --output."
        )
    return output


def _content(path: str) -> tuple[str, bytes]:
    with beam_publish.open_file(path) as file:
        return os.path.basename(path), file.read()


def _result(job: beam_publish.Job) -> dict[str, Any]:
    """The report of a finished job.

    Raises:
        ValueError: the job wrote nothing: no example, or too many unusable lines.
    """
    unpublished = FileSystems.join(job.folder, REPORT)
    is_published = not FileSystems.exists(unpublished)
    with beam_publish.open_file(
        FileSystems.join(job.output, REPORT) if is_published else unpublished
    ) as file:
        report: dict[str, Any] = parsed_json(file.read())
    files = [one for some in report["files"].values() for one in some]
    for one in files:
        for warning in one["warnings"]:
            print(f"warning: {one['file']}: {warning}", file=sys.stderr)
    if is_published:
        return report
    bad_lines = report["bad_lines"]
    if job.max_bad_lines is not None and bad_lines["count"] > job.max_bad_lines:
        raise dumps.TooManyBadLinesError(
            f"At most {job.max_bad_lines:,} lines may be unusable. "
            f"Received: {bad_lines['count']:,}; the first are {', '.join(bad_lines['first'])}. "
            "Repair the files, or raise --max_bad_lines."
        )
    counts = report["threads"]
    skipped = [one["skipped"] for one in files]
    raise ValueError(why_no_example(counts["comments"], counts["dropped"], skipped))
