"""Report of a data folder: `report.json`, its plot and its table."""

import dataclasses
import itertools
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from convert_tf.corpora import threads
from convert_tf.corpora.dumps import BadLines, CountedFile
from convert_tf.corpora.rows import Output, RowMaker
from convert_tf.corpora.vocabulary import count_words
from convert_tf.data.schema import MAX_EXTRA_CONTEXTS, SPLITS
from convert_tf.figures import picture, write_picture
from convert_tf.storage.files import write_file
from convert_tf.storage.json_text import written_json
from convert_tf.text.plain_tokenizer import PlainTokenizer
from convert_tf.text.subwords import SubwordConfig, learn_subwords
from convert_tf.text.tokenizer import Tokenizer, load_tokenizer

_SAMPLE_OCCURRENCES = 4_000  # a subword of the sample's vocabulary stands in one of so many texts
_MAX_TOKENS = 2**20  # more than any text has
_LONGEST_BIN = 128  # longer texts are counted with those of this many subwords
_ROLES = ("context", "response")


def assemble(
    files: Mapping[str, Sequence[CountedFile]],
    bad_lines: BadLines,
    maker: RowMaker,
    written: Output,
    vocabulary: str | None,
) -> dict[str, Any]:
    """Return the content of `report.json`.

    Args:
        files: the input files, by kind.
        bad_lines: the unusable lines of all files.
        maker: has the options and the counts of turns and threads.
        written: counts and a sample of the output.
        vocabulary: a vocabulary file to measure lengths with; None learns one from the sample.
    """
    examples, texts = written.examples, written.single_texts
    return ({"single_texts": dict(sorted(texts.items()))} if texts else {}) | {
        "rules": {
            corpus: dataclasses.asdict(rules)
            for corpus, rules in maker.options.rules_by_corpus(files).items()
        },
        "dev_fraction": maker.options.dev_fraction,
        "files": {what: [_file_facts(file) for file in all] for what, all in files.items() if all},
        "bad_lines": {"count": bad_lines.count, "first": bad_lines.first},
        "threads": threads.total_counts(maker.counts.values()).as_dict(),
        "sources": {source: one.as_dict() for source, one in sorted(maker.counts.items())},
        "splits": {
            split: {
                "examples": sum(numbers.get(split, 0) for numbers in examples.values()),
                "threads": maker.num_threads.get(split, 0),
            }
            for split in SPLITS
        },
        "examples": {
            source: {split: numbers.get(split, 0) for split in SPLITS}
            for source, numbers in sorted(examples.items())
        },
        "history": [written.history.get(turns, 0) for turns in range(MAX_EXTRA_CONTEXTS + 1)],
        "lengths": subword_lengths(written.sample, vocabulary),
    }


def subword_lengths(texts: Mapping[str, Sequence[str]], vocabulary: str | None) -> dict[str, Any]:
    """Return the lengths of texts in subwords.

    Args:
        texts: texts by role.
        vocabulary: vocabulary file; None learns a vocabulary from the texts.

    Returns:
        `vocabulary`, which was used; and for each role the `mean`, the `percentiles` 50, 90 and 99,
        and the `histogram`: the number of texts with 0, 1, … subwords. The last entry includes
        longer texts. Empty if there is no text.
    """
    everything = [text for role in texts for text in texts[role]]
    if not everything:
        return {}
    if vocabulary:
        tokenizer: Tokenizer | PlainTokenizer = load_tokenizer(vocabulary)
        name = os.path.basename(vocabulary)
    else:
        words = count_words(text.encode() for text in everything).counts()
        min_count = max(1, len(everything) // _SAMPLE_OCCURRENCES)
        subwords = learn_subwords(words, SubwordConfig(min_count=min_count, alphabet_min_count=1))
        tokenizer = PlainTokenizer(subwords)
        name = f"{len(subwords):,} subwords learnt from a sample of the examples"
    lengths = {
        role: np.diff(tokenizer.flat_ids(texts[role], max_tokens=_MAX_TOKENS)[1]) for role in texts
    }
    return {"vocabulary": name} | {
        role: {
            "texts": len(numbers),
            "mean": round(float(numbers.mean()), 2),
            "percentiles": {str(p): int(np.percentile(numbers, p)) for p in (50, 90, 99)},
            "histogram": np.bincount(np.minimum(numbers, _LONGEST_BIN)).tolist(),
        }
        for role, numbers in lengths.items()
    }


def _file_facts(file: CountedFile) -> dict[str, Any]:
    return {
        "file": os.path.basename(file.path),
        "kind": file.kind,
        "bytes": file.compressed_bytes,
        "lines": file.lines,
        "skipped": {reason: number for reason, number in sorted(file.skipped.items()) if number},
        "warnings": [warning.removeprefix(f"{file.name}: ") for warning in file.warnings],
    }


def skipped_lines(report: Mapping[str, Any]) -> Counter[str]:
    """Return the number of skipped lines of all files, by reason."""
    skipped: Counter[str] = Counter()
    for files in report["files"].values():
        for one in files:
            skipped.update(one["skipped"])
    return skipped


def why_no_example(
    counts: Mapping[str, threads.ThreadCounts], files: Mapping[str, Sequence[CountedFile]]
) -> str:
    """Return the error of an input without examples.

    Args:
      counts: what happened to the turns of each source.
      files: what was read, by kind.
    """
    total = threads.total_counts(counts.values())
    reasons = Counter(total.dropped)
    for file in itertools.chain(*files.values()):
        reasons.update(file.skipped)
    left_out = ", ".join(f"{number:,} {reason}" for reason, number in reasons.most_common())
    return (
        f"The input gives no example. It has {total.comments:,} usable turns; left out: "
        f"{left_out or 'nothing'}. Check that each file is what its flag says, and that the "
        "limits of length are not too narrow."
    )


def table(report: Mapping[str, Any]) -> str:
    """Return the counts of a report as a short table."""
    counts = report["threads"]
    rows = [("turns read", counts["comments"]), ("threads", counts["threads"])]
    rows += [("titles", counts["titles"])]
    rows += [(f"changed: {rule}", number) for rule, number in counts["changed"].items()]
    rows += _left_out(report).items()
    if len(report["examples"]) > 1:
        rows += [
            (f"examples of {source}", sum(numbers.values()))
            for source, numbers in report["examples"].items()
        ]
    if counts.get("additional"):
        rows += [("additional examples", counts["additional"])]
    if "single_texts" in report:
        rows += [("single texts", sum(report["single_texts"].values()))]
    rows += [(f"{split} examples", report["splits"][split]["examples"]) for split in SPLITS]
    width = max(len(name) for name, _ in rows) + 2
    return "\n".join(f"{name:<{width}}{number:>14,}" for name, number in rows)


def write(folder: str, report: Mapping[str, Any]) -> None:
    """Write `report.json` and `report.png`."""
    write_file(os.path.join(folder, "report.json"), written_json(report, sort_keys=True))
    write_picture(os.path.join(folder, "report.png"), lambda: draw(report))


@picture
def draw(report: Mapping[str, Any]) -> Any:
    """Plot the report.

    Returns:
        Four panels: examples by source and split, lengths in subwords, number of earlier turns, and
        reasons for dropped turns.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter, MaxNLocator

    figure = Figure(figsize=(12, 8), layout="constrained")
    by_source, lengths, history, dropped = figure.subplots(2, 2).flat

    sources = list(report["examples"])[::-1]
    left = np.zeros(len(sources))
    for split in SPLITS:
        numbers = np.array([report["examples"][source][split] for source in sources])
        by_source.barh(sources, numbers, left=left, label=split)
        left += numbers
    by_source.set(title="Examples by source", xlabel="examples")
    by_source.legend()

    for role in _ROLES:
        if role in report["lengths"]:
            histogram = np.array(report["lengths"][role]["histogram"])
            lengths.step(
                np.arange(len(histogram)),
                100 * histogram / histogram.sum(),
                where="mid",
                label=role,
            )
    lengths.set(title="Lengths", xlabel="subwords", ylabel="% of a sample of texts")
    if report["lengths"]:
        lengths.legend()

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


def _left_out(report: Mapping[str, Any]) -> dict[str, int]:
    """Return the numbers of lines and turns that are in no example, by reason."""
    counts = report["threads"]
    return {
        **{f"skipped: {reason}": n for reason, n in sorted(skipped_lines(report).items())},
        "duplicates": counts["duplicates"],
        "first turn, no title": counts["top_level"],
        "orphans": counts["orphans"],
        "in a reply cycle": counts["cyclic"],
        **{f"dropped: {reason}": number for reason, number in counts["dropped"].items()},
    }
