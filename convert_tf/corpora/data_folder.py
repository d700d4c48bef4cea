"""Write the data folder of `prepare`, with any engine: records, and a report with a plot."""

import dataclasses
import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from convert_tf.corpora import threads
from convert_tf.corpora.dumps import BadLines, CountedFile
from convert_tf.corpora.options import PrepareOptions
from convert_tf.corpora.rows import Steps
from convert_tf.corpora.vocabulary import count_words
from convert_tf.data.schema import MAX_EXTRA_CONTEXTS, PAIR, SPLITS
from convert_tf.data.shards import record_files
from convert_tf.data.token_writer import tokenize_records
from convert_tf.figures import literal, picture, write_picture
from convert_tf.storage.files import write_file
from convert_tf.storage.folders import OutputFolder
from convert_tf.storage.json_text import written_json
from convert_tf.storage.lines import file_state, zst_written
from convert_tf.text.plain_tokenizer import PlainTokenizer
from convert_tf.text.subwords import SubwordConfig, learn_subwords
from convert_tf.text.tokenizer import Tokenizer, load_tokenizer

SINGLE_TEXTS = "single_texts.jsonl.zst"
_REPORT, _PLOT, _TOKEN_IDS = "report.json", "report.png", "ids"
_TEXTS_PER_OCCURRENCE = 4_000  # in a small vocabulary, min_count rises by 1 per this many texts
_MAX_TOKENS = 2**20  # no text is longer than this
_LONGEST_BIN = 128  # longer texts are counted as having this many subwords
_MAX_BARS = 30  # sources with a bar of their own in the picture


@dataclasses.dataclass
class Preparation:
    """A run of `prepare`: its input, its counts and its folders.

    Args:
      options: rules, sizes and limits of the run.
      paths: paths of the input files, by kind.
      folder: folder for records and single texts.
      scratch: folder for temporary files.

    Attributes:
      steps: the steps that make rows from files, with their counts.
      bad_lines: number of unusable lines in all files, and the places of the first ones.
      files: the files read so far, by kind. The engine adds them.
      states: the state of each input file when the run started, by path. If a file has changed by
        the time it is read, the run ends with an error.
    """

    options: PrepareOptions
    paths: Mapping[str, Sequence[str]]
    folder: str
    scratch: str
    files: dict[str, list[CountedFile]] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        self.states = {path: file_state(path) for paths in self.paths.values() for path in paths}
        self.forget_counts()

    def forget_counts(self) -> None:
        """Reset all counts and the list of files that were read."""
        self.steps = Steps(self.options)
        self.bad_lines = BadLines(limit=self.options.max_bad_lines)
        self.files.clear()

    def write_single_texts(self, lines: Iterable[bytes]) -> None:
        """Write the file of single texts if the rules for any corpus ask for it."""
        rules = self.options.rules_by_corpus(self.paths).values()
        if any(one.single_texts for one in rules):
            with zst_written(os.path.join(self.folder, SINGLE_TEXTS)) as target:
                for line in lines:
                    target.write(line)


# An engine reads the input files of a run and writes its records and single texts.
Engine = Callable[[Preparation], None]


def prepare(
    inputs: Sequence[str],
    output: str,
    *,
    engine: Engine,
    submissions: Sequence[str] = (),
    corpora: Mapping[str, Sequence[str]] | None = None,
    options: PrepareOptions | None = None,
    vocabulary: str | None = None,
    tokenize: bool = False,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Write a data folder from dump files and other corpora.

    The folder is written atomically: everything goes to a temporary folder, which is renamed at the
    end. A killed run leaves its temporary folder behind. The next run with the same output deletes
    that folder and starts again.

    Args:
      inputs: files of Reddit comments.
      output: the data folder.
      engine: function that does the work, on one machine or on a cluster.
      submissions: files of Reddit submissions.
      corpora: files of other corpora, by name of the corpus.
      options: rules, sizes and limits; None for the defaults.
      vocabulary: a vocabulary file to measure text lengths with. If None, a vocabulary is learnt
        from a sample of the texts.
      tokenize: whether to also write token ids, made with `vocabulary`, to `ids/` in the folder.
      overwrite: whether to replace existing records in the folder.

    Returns:
      The report, as written to `report.json`.

    Raises:
      ValueError: if the folder already contains records, another process is writing it, the input
        yields no examples, more lines are unusable than allowed, or `tokenize` is set without a
        vocabulary.
      OSError: if a file cannot be read or written; with `errno.ENOSPC` if the disk is full;
        `FileChangedError` if an input file changed during the run.
    """
    if tokenize and vocabulary is None:
        raise ValueError(
            "--tokenize needs --vocab. First learn a vocabulary from the records with convert-tf "
            "vocabulary. Then run convert-tf tokenize on the records, or this command with --vocab."
        )
    options = options or PrepareOptions()
    target = OutputFolder(
        output, data_files=_data_files, temp_dir=options.temp_dir, overwrite=overwrite
    )
    paths = {"comments": inputs, "submissions": submissions, **(corpora or {})}
    with target.open() as place:
        run = Preparation(options, paths, folder=str(place), scratch=target.scratch)
        engine(run)
        for file in itertools.chain(*run.files.values()):
            file.print_warnings()
        if not run.steps.examples:
            raise ValueError(_why_no_example(run))
        report = _report(run, vocabulary)
        write_file(place / _REPORT, written_json(report, sort_keys=True))
        write_picture(place / _PLOT, lambda: draw(report))
        if tokenize and vocabulary is not None:
            tokenize_records(run.folder, str(place / _TOKEN_IDS), vocabulary=vocabulary)
    return report


def _data_files(folder: str) -> list[str]:
    names = (_REPORT, _PLOT, SINGLE_TEXTS, _TOKEN_IDS)
    others = (os.path.join(folder, name) for name in names)
    return [*record_files(folder), *filter(os.path.exists, others)]


def _why_no_example(run: Preparation) -> str:
    """Return the error message for an input without examples."""
    total = threads.total_counts(run.steps.counts.values())
    reasons = Counter(total.dropped)
    for file in itertools.chain(*run.files.values()):
        reasons.update(file.skipped)
    left_out = ", ".join(f"{number:,} {reason}" for reason, number in reasons.most_common())
    return (
        f"The input yields no examples. It has {total.comments:,} usable turns; dropped: "
        f"{left_out or 'nothing'}. Check that each flag names files of the correct kind, and that "
        "the length limits are not too strict."
    )


def _report(run: Preparation, vocabulary: str | None) -> dict[str, Any]:
    """Return the content of `report.json`.

    Args:
      run: the run, with its counts.
      vocabulary: a vocabulary file to measure text lengths with. If None, a vocabulary is learnt
        from the sample.
    """
    steps, examples, texts = run.steps, run.steps.examples, run.steps.single_texts
    return ({"single_texts": dict(sorted(texts.items()))} if texts else {}) | {
        "rules": {
            corpus: dataclasses.asdict(rules)
            for corpus, rules in run.options.rules_by_corpus(run.files).items()
        },
        "dev_fraction": run.options.dev_fraction,
        "files": {what: [*map(_file_facts, files)] for what, files in run.files.items() if files},
        "bad_lines": {"count": run.bad_lines.count, "first": run.bad_lines.first},
        "threads": threads.total_counts(steps.counts.values()).as_dict(),
        "sources": {source: one.as_dict() for source, one in sorted(steps.counts.items())},
        "splits": {
            split: {
                "examples": sum(numbers[split] for numbers in examples.values()),
                "threads": steps.num_threads[split],
            }
            for split in SPLITS
        },
        "examples": {
            source: {split: numbers[split] for split in SPLITS}
            for source, numbers in sorted(examples.items())
        },
        "history": [steps.history[turns] for turns in range(MAX_EXTRA_CONTEXTS + 1)],
        "lengths": _subword_lengths(steps.sample, vocabulary),
    }


def _subword_lengths(texts: Mapping[str, Sequence[str]], vocabulary: str | None) -> dict[str, Any]:
    """Return statistics on the lengths of texts in subwords.

    Args:
      texts: texts by role.
      vocabulary: vocabulary file. If None, a vocabulary is learnt from the texts.

    Returns:
      A dict with the name of the `vocabulary`, and for each role a dict with the number of `texts`,
      the `mean` length, the `percentiles` 50, 90 and 99, and the `histogram`: the numbers of texts
      with 0, 1, … subwords, where the last entry includes all longer texts. The dict is empty if
      there are no texts.
    """
    everything = [text for role in texts for text in texts[role]]
    if not everything:
        return {}
    if vocabulary:
        tokenizer: Tokenizer | PlainTokenizer = load_tokenizer(vocabulary)
        name = os.path.basename(vocabulary)
    else:
        words = count_words(text.encode() for text in everything).counts()
        subwords = learn_subwords(words, small_vocabulary(len(everything)))
        tokenizer = PlainTokenizer(subwords)
        name = f"{len(subwords):,} subwords learnt from a sample of the examples"
    lengths: dict[str, Any] = {"vocabulary": name}
    for role in texts:
        numbers = np.diff(tokenizer.flat_ids(texts[role], max_tokens=_MAX_TOKENS)[1])
        lengths[role] = {
            "texts": len(numbers),
            "mean": round(float(numbers.mean()), 2),
            "percentiles": {str(p): int(np.percentile(numbers, p)) for p in (50, 90, 99)},
            "histogram": np.bincount(np.minimum(numbers, _LONGEST_BIN)).tolist(),
        }
    return lengths


def small_vocabulary(num_texts: int, *, at_least: int = 1) -> SubwordConfig:
    """Return options for learning a vocabulary with all characters of a small number of texts.

    Args:
      num_texts: number of texts.
      at_least: lower bound for `min_count`, the minimum number of occurrences of a subword.
    """
    min_count = max(at_least, num_texts // _TEXTS_PER_OCCURRENCE)
    return SubwordConfig(min_count=min_count, alphabet_min_count=1)


def _file_facts(file: CountedFile) -> dict[str, Any]:
    return {
        "file": os.path.basename(file.path),
        "kind": file.kind,
        "bytes": file.compressed_bytes,
        "lines": file.lines,
        "skipped": dict(sorted(file.skipped.items())),
        "first_bad": file.first_bad,
        "warnings": [warning.removeprefix(f"{file.name}: ") for warning in file.warnings],
    }


def table(report: Mapping[str, Any]) -> str:
    """Format the counts in a report as a short table, followed by the places of unusable lines.

    The table lists the first few unusable lines of the run, and the first one of each file.
    """
    counts, examples = report["threads"], report["examples"]
    rows = {"turns read": counts["comments"], "threads": counts["threads"]}
    rows["titles"] = counts["titles"]
    rows |= {f"changed: {rule}": number for rule, number in counts["changed"].items()}
    rows |= _left_out(report)
    if len(examples) > 1:
        rows |= {f"examples of {name}": sum(numbers.values()) for name, numbers in examples.items()}
    if "additional" in counts:
        rows["additional examples"] = counts["additional"]
    if "single_texts" in report:
        rows["single texts"] = sum(report["single_texts"].values())
    rows |= {f"{split} examples": report["splits"][split]["examples"] for split in SPLITS}
    width = max(map(len, rows)) + 2
    lines = [f"{name:<{width}}{number:>14,}" for name, number in rows.items()]
    files = itertools.chain(*report["files"].values())
    places = [*report["bad_lines"]["first"], *(file.get("first_bad", "") for file in files)]
    if any(places):
        lines.append("first unusable lines:")
        # Earlier versions stored only the number of the first bad line of a file.
        named = (place for place in places if isinstance(place, str) and place)
        lines += [f"  {place}" for place in dict.fromkeys(named)]
    return "\n".join(lines)


@picture
def draw(report: Mapping[str, Any]) -> Any:
    """Plot the report.

    Returns:
      A figure with four panels: examples by source and split, text lengths in subwords, number of
      earlier turns, and reasons why turns were dropped.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter, MaxNLocator

    figure = Figure(figsize=(12, 8), layout="constrained")
    by_source, lengths, history, dropped = figure.subplots(2, 2).flat

    examples = _largest_sources(report["examples"])
    sources = list(examples)[::-1]
    left = np.zeros(len(sources))
    for split in SPLITS:
        numbers = np.array([examples[source][split] for source in sources])
        by_source.barh([*map(literal, sources)], numbers, left=left, label=split)
        left += numbers
    by_source.set(title="Examples by source", xlabel="examples")
    by_source.legend()

    if report["lengths"]:
        for role in PAIR:
            histogram = np.array(report["lengths"][role]["histogram"])
            share = 100 * histogram / histogram.sum()
            lengths.step(np.arange(len(share)), share, where="mid", label=role)
        lengths.legend()
    lengths.set(title="Lengths", xlabel="subwords", ylabel="% of a sample of texts")

    history.bar(np.arange(len(report["history"])), report["history"])
    history.set(title="Turns before the context", xlabel="extra contexts", ylabel="examples")

    reasons = sorted((number, name) for name, number in _left_out(report).items() if number)
    dropped.barh([name for _, name in reasons], [number for number, _ in reasons])
    dropped.set(title="What was left out", xlabel="turns")
    for counted in (by_source.xaxis, history.yaxis, dropped.xaxis):
        counted.set_major_locator(MaxNLocator(nbins=6, integer=True))
        counted.set_major_formatter(EngFormatter(sep=""))
    for axes in (by_source, lengths, history, dropped):
        axes.grid()
    return figure


def _largest_sources(examples: Mapping[str, Mapping[str, int]]) -> dict[str, Mapping[str, int]]:
    """Count the examples of the largest sources, in their order, and of all others together."""
    by_size = sorted(examples, key=lambda source: -sum(examples[source].values()))
    shown = {*by_size[:_MAX_BARS]}
    bars = {source: numbers for source, numbers in examples.items() if source in shown}
    if others := by_size[_MAX_BARS:]:
        totals = {split: sum(examples[source][split] for source in others) for split in SPLITS}
        bars[f"{len(others):,} others"] = totals
    return bars


def _left_out(report: Mapping[str, Any]) -> dict[str, int]:
    """Count the lines and turns that are in no example, by reason."""
    counts, skipped = report["threads"], Counter[str]()
    for file in itertools.chain(*report["files"].values()):
        skipped.update(file["skipped"])
    return {
        **{f"skipped: {reason}": n for reason, n in sorted(skipped.items())},
        "duplicates": counts["duplicates"],
        "first turn, no title": counts["top_level"],
        "orphans": counts["orphans"],
        "in a reply cycle": counts["cyclic"],
        **{f"dropped: {reason}": number for reason, number in counts["dropped"].items()},
    }
