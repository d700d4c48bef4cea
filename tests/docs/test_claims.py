"""Statements on the pages that can be checked against the code and a released encoder."""

import inspect
import json
import re
import shlex

import numpy as np
import pytest
from support.documents import ROOT, blocks, page_text, run_block

from convert_tf import EncoderClient, SentenceEncoder
from convert_tf.config.train import TRAIN_RECIPES
from convert_tf.corpora import threads
from convert_tf.data import packing, schema
from convert_tf.encoding import signatures, text_batches
from convert_tf.intents import (
    cross_validation,
    decision,
    discover,
    head,
    messages,
    monitor,
    predictor,
    suggest,
)
from convert_tf.readers import columns
from convert_tf.training import own_file, processes

SURFACE = page_text("docs/surface.txt").splitlines()
NETWORK = {
    name: parameter.default
    for name, parameter in inspect.signature(head.train_network).parameters.items()
}
NAME_OF_NUMBER = {3: "three", 4: "four", 5: "five", 8: "eight", 20: "twenty"}
# Sentences with numbers from the code: page, sentence, and the values for the braces.
NUMBERS = [
    ("docs/architecture.md", "segment `slot % {0}` of row `slot // {0}`", packing.SEGMENTS_PER_ROW),
    ("docs/data.md", "`context/{}`) and a `source`", schema.MAX_EXTRA_CONTEXTS - 1),
    ("docs/data.md", "and {} other pairs", len(columns.PAIR_NAMES) - 5),
    ("docs/encode.md", "maximum number of texts in a batch ({})", text_batches.BATCH_SIZE),
    ("docs/encode.md", "(`cache_size`, {:,} for each kind)",
     inspect.signature(EncoderClient).parameters["cache_size"].default),
    ("docs/encode.md", "For shorter vectors pass {}, {} or {}", signatures.SHORTER_DIMS),
    ("docs/intents.md", "dropout {dropout}, {hidden_dim} units, a learning rate of {learning_rate} "
     "that falls to 0, batches of {batch_size}, {epochs} epochs", NETWORK),
    ("docs/encode.md", "From {} up, an ONNX file or a Hugging Face folder may form batches of up "
     "to {} texts", (text_batches.BATCH_SIZE, text_batches._LARGEST_SHARED_BATCH)),
    ("docs/intents.md", "with which at least {} held-out or validation texts are answered",
     NAME_OF_NUMBER[cross_validation._ENOUGH]),
    ("docs/intents.md", "With more than {:,} examples, only one quarter is left out",
     cross_validation._MANY),
    ("docs/intents.md", "at least {} more in-scope examples than intents",
     discover._ENOUGH_EXAMPLES),
    ("docs/intents.md", "reject one in {} of your in-scope examples",
     NAME_OF_NUMBER[round(1 / cross_validation._REJECTED_SHARE)]),
    ("docs/intents.md", "the weight is {:.0f} if there are fewer than {} intents",
     (decision.COSINE_WEIGHT, NAME_OF_NUMBER[cross_validation._ENOUGH_INTENTS])),
    ("docs/intents.md", "are explained: at most {}", predictor.MAX_EXPLAINED_WORDS),
    ("docs/intents.md", "more than {:,} characters", predictor._MAX_EXPLAINED_CHARACTERS),
    ("docs/intents.md", "with a probability below {} (`--min_confidence`)",
     messages.MIN_CONFIDENCE),
    ("docs/intents.md", "groups smaller than `--min_size` ({})", discover.MIN_SIZE),
    ("docs/intents.md", "explains {:.0f} % of the variance", 100 * discover._EXPLAINED),
    ("docs/intents.md", "A sample of about {:,} messages is clustered", discover._SAMPLE),
    ("docs/intents.md", "writes the {} messages whose labels", suggest.BUDGET),
    ("docs/intents.md", "(far from the examples)` | p < {}", monitor._ALARM),
    ("docs/intents.md", "| an intent | p < {}", monitor._SIGNIFICANCE),
    ("docs/intents.md", "cosine between their centres is {} or more", discover.SAME_GROUP),
    ("docs/intents.md", "contains up to {} messages from each group",
     NAME_OF_NUMBER[messages.CENTRAL]),
    ("docs/training.md", "about {} pairs or 1 % of the pairs", own_file.DEV_EXAMPLES),
    ("docs/training.md", "for at least {} and at most {:,} steps",
     (own_file.MIN_STEPS, TRAIN_RECIPES["small"]["steps"])),
    ("docs/training.md", "R100@1 needs {}", own_file.BLOCK_SIZE),
    ("docs/training.md", "holds out a {} as the test split",
     {0.9: "tenth"}[threads.TRAIN_FRACTION]),
    ("docs/training.md", "| {} | stopped by SIGTERM", processes.NOT_FINISHED),
    ("docs/training.md", "| {} | another process of the run was lost", processes.PEER_LOST),
]  # fmt: skip
# Sentences that state the default of a flag.
DEFAULTS = [
    ("docs/data.md", "is {} occurrences, the paper's number", "vocabulary --min_count"),
    ("docs/data.md", "occurrences ({}) are always in the vocabulary",
     "vocabulary --alphabet_min_count"),
    ("docs/page.md", "`http://127.0.0.1:{}`", "demo --port"),
    ("docs/search.md", "`--max_candidates` texts, {:,} by default",
     "index search --max_candidates"),
    ("docs/several_machines.md", "`--join_timeout` ({} seconds)", "train --join_timeout"),
    ("docs/training.md", "(by default {:,} from the train split)", "evaluate --train_examples"),
]  # fmt: skip


def words(text):
    """Return the text on one line."""
    return " ".join(text.split())


@pytest.mark.parametrize(("page", "sentence", "values"), NUMBERS, ids=[row[1] for row in NUMBERS])
def test_numbers_are_those_of_the_code(page, sentence, values):
    if isinstance(values, dict):
        sentence = sentence.format(**values)
    else:
        sentence = sentence.format(*(values if isinstance(values, tuple) else (values,)))
    assert words(sentence) in words(page_text(page))


@pytest.mark.parametrize(("page", "sentence", "flag"), DEFAULTS, ids=[row[2] for row in DEFAULTS])
def test_defaults_are_those_of_the_flags(page, sentence, flag):
    (line,) = (line for line in SURFACE if line.startswith(f"{flag} "))
    assert sentence.format(int(line.split()[-1])) in words(page_text(page))


@pytest.mark.slow
def test_limits_of_the_service_are_those_of_the_code():
    pytest.importorskip("fastapi")
    from convert_tf.service import access, application, middleware, server

    page = words(page_text("docs/service.md"))
    for sentence in (
        f"{application._MAX_RESULTS:,} results of a request (contexts × `top_k`), or "
        f"{application._MAX_RESULT_CHARACTERS:,} characters in them",
        f"(up to {application._MAX_EXPLAINED_WORDS:,} words per request",
        f"head takes {server._FOR_HEAD:.0f} s, or whose body takes {middleware._FOR_BODY:.0f} s",
        f"open connections: {server._MOST_CONNECTIONS:,}, or fewer",
        f"answers its open requests within {server.GRACE} s",
        f"A request whose body is still being received has {server._TO_END:.0f} s",
        f"Idle connections stay open for {server._KEEP_ALIVE} s",
    ):
        assert sentence in page, sentence
    assert access._ID.fullmatch(b"a" * 128) and not access._ID.fullmatch(b"a" * 129)
    assert "with at most 128 letters" in page


def test_the_table_of_column_names_is_that_of_the_code():
    page = page_text("docs/data.md")
    for name, known in (("text", columns.TEXT), ("label", columns.LABEL)):
        (row,) = re.findall(rf"^\| {name} \| (.*) \|$", page, re.MULTILINE)
        assert [*known] == re.findall(r"`(\w+)`", row)
    row = next(line for line in page.splitlines() if line.startswith("| context and response |"))
    assert {*re.findall(r"`(\w+)` and `(\w+)`", row)} <= {*columns.PAIR_NAMES}


def test_the_recipe_small_is_that_of_the_code():
    (line,) = re.findall(r"^\| `small` .*`(--optimizer [^`]*)` \|$", page_text("docs/training.md"),
                         re.MULTILINE)  # fmt: skip
    flags = shlex.split(line)
    stated = dict(zip((name[2:] for name in flags[::2]), flags[1::2], strict=True))
    assert {*stated} == {*TRAIN_RECIPES["small"]}
    for name, value in TRAIN_RECIPES["small"].items():
        assert stated[name] == value if isinstance(value, str) else float(stated[name]) == value


HOURS = {"hours": 1, "minutes": 1 / 60, "days": 24}
PAIRS_OF_THE_PAPER = 727_000_000


def shown_hours(cell):
    """Return the hours in a cell such as "1.7 to 3.5 hours", and their rounding steps."""
    unit = HOURS[cell.split()[-1]]
    numbers = re.findall(r"[\d.]+", cell)
    return [(float(n) * unit, 10.0 ** -len(n.partition(".")[2]) * unit) for n in numbers]


def check_times(cell, rates, amount):
    """Check that a cell shows the time for an amount at each rate."""
    for (hours, step), rate in zip(shown_hours(cell), rates, strict=True):
        exact = amount / rate / 3600
        assert abs(hours - exact) <= step / 2 * 1.001, (cell, exact)


def test_calculations_of_scale_are_right():
    """Times are amounts divided by measured rates; cores count fully where the page says so."""
    one_core = 0.0
    gpu = json.loads(page_text("docs/results.json"))["measurements"]["training_gpu"][-1]["figures"]
    checked = 0
    for line in page_text("docs/scale.md").splitlines():
        name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        if not line.startswith("|") or not re.search(r"hours|minutes", line):
            continue
        if run := gpu.get("run of " + name.strip("`")):
            rate = run["pairs/s"]
            check_times(cells[0], [rate], PAIRS_OF_THE_PAPER)
            check_times(cells[1], [8 * rate], PAIRS_OF_THE_PAPER)
        else:
            shown, *times = cells
            if shown == "–":
                rates = [one_core * int(re.search(r"(\d+) cores", name)[1])]
            else:
                rates = [float(rate.replace(",", "")) for rate in shown.split(" to ")][::-1]
                one_core = rates[0] if "one core" in name else one_core
            amounts = [3e8, 3.6e9] if len(times) == 2 else [1e8]
            for time, amount in zip(times, amounts, strict=True):
                check_times(time, rates, amount)
        checked += 1
    assert checked == 11


def test_the_released_encoders_are_described():
    page = page_text("hub_modules/README.md")
    for folder, blocks_, megabytes in re.findall(
        r"^\| `(\w+/\d+)` \|.*\| (\d) \| ([\d.]+) \|$", page, re.MULTILINE
    ):
        path = ROOT / "hub_modules" / folder
        size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        assert f"{size / 1e6:.1f}" == megabytes, folder
        config = json.loads((path / "config.json").read_text(encoding="utf-8"))
        assert len(config["max_relative_attention"]) == int(blocks_), folder
    vocabulary = (path / "assets" / "vocab.txt").read_text(encoding="utf-8").splitlines()
    assert f"| subwords | 31,476 | {len(vocabulary):,} |" in page


# The left form is read as the right one (docs/encode.md).
FOLDED = {
    "white space": (" where\tis\u00a0 my\r\ncard? ", "where is my card?"),
    "no width": ("wh\u00adere is\u200b my card?", "where is my card?"),
    "full width": ("ｗｈｅｒｅ is my card?", "where is my card?"),
    "bold and circled": ("𝐛𝐨𝐥𝐝 ⓒⓘⓡⓒⓛⓔⓓ", "bold circled"),
    "ligature, dots, number sign": ("ﬁle… № 5", "file... No 5"),
    "hyphens": ("e\u2010mail e\u2011mail", "e-mail e-mail"),
    "accent": ("cafe\u0301", "café"),
    "case": ("WHERE is My card?", "where is my card?"),
}
KEPT = [("10²", "102"), ("x₂", "x2"), ("½", "1/2"), ("a—b", "a-b"), ("“x”", '"x"')]


@pytest.fixture(scope="module")
def encoder():
    return SentenceEncoder("convert_small")


@pytest.mark.slow
@pytest.mark.parametrize("name", FOLDED)
def test_texts_that_look_the_same_have_one_vector(encoder, name):
    first, second = encoder.encode_reduced([*FOLDED[name]])
    np.testing.assert_array_equal(first, second)


@pytest.mark.slow
@pytest.mark.parametrize("texts", KEPT, ids=str)
def test_what_stays_changes_the_vector(encoder, texts):
    first, second = encoder.encode_reduced([*texts])
    assert np.abs(first - second).max() > 0.01


@pytest.mark.slow
def test_the_five_encodings_are_as_the_table_says(encoder):
    texts = ["how do I reset my password?", "where is my card?", ""]
    rows = re.findall(
        r"^\| `(\w+)` \| `(\w+)` \| `\[texts, (\w+)\]`, ([\w ]+)",
        page_text("docs/encode.md"), re.MULTILINE,
    )  # fmt: skip
    assert len(rows) == 5
    for method, kind, width, length in rows:
        vectors = getattr(encoder, method)(texts)
        np.testing.assert_array_equal(vectors, encoder.encode(texts, kind=kind))
        assert vectors.shape[1] == int(width) if width.isdigit() else vectors.shape[1] <= 512
        lengths = np.linalg.norm(vectors[:2], axis=1)
        if length.strip() == "length 1":
            np.testing.assert_allclose(lengths, 1, atol=1e-5)
        else:
            assert length.strip() == "not normalised" and np.abs(lengths - 1).min() > 0.1
    assert not encoder.encode_similarity(texts)[2].any()
    shorter = encoder.encode_similarity(texts[:2])[:, :128]
    shorter /= np.linalg.norm(shorter, axis=1, keepdims=True)
    np.testing.assert_allclose(encoder.encode_similarity(texts[:2], 128), shorter, atol=1e-6)


@pytest.mark.slow
def test_the_first_512_subwords_are_read(encoder):
    long, longer = "word " * 600, "word " * 600 + "with another end"
    np.testing.assert_array_equal(*encoder.encode_reduced([long, longer]))
    short, other = encoder.encode_reduced(["word " * 500, "word " * 500 + "with another end"])
    assert np.abs(short - other).max() > 0.001


@pytest.mark.slow
def test_other_texts_of_a_batch_change_a_vector_by_rounding(encoder):
    lines = (ROOT / "benchmarks" / "responses.txt").read_text(encoding="utf-8").splitlines()
    together = encoder.encode(lines)
    alone = np.concatenate([encoder.encode([line]) for line in lines])
    lengths = np.linalg.norm(together, axis=1)
    cosines = (together * alone).sum(1) / lengths / np.linalg.norm(alone, axis=1)
    assert cosines.min() >= 0.999  # docs/stability.md
    equal = np.abs(together - alone).max(1) <= 1e-6 * lengths
    assert equal.mean() > 0.5  # docs/encode.md: most texts


@pytest.mark.slow
def test_the_cosines_of_the_readme_are_those_of_its_example(encoder):
    (block,) = blocks("README.md", language="python", section="Rank responses")
    names = run_block(block)
    cosines = re.search(r"with cosines of ([\d.]+) and ([\d.]+)", words(page_text("README.md")))
    questions = re.findall(r'encoder\.rank\("(.*?)"', block.text)
    for question, cosine in zip(questions, cosines.groups(), strict=True):
        ((_, score),) = names["encoder"].rank(question, names["responses"], top_k=1)
        assert score == pytest.approx(float(cosine), abs=0.015)
