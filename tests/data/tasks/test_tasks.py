"""Reading the formats of the papers' tasks: small files, wrong files, and the published files."""

import gzip
import json
import os
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import zstandard
from support import task_files
from support.task_files import OTHERS, PERSONA, TURNS

from convert_tf.data.candidates import read_candidates, read_examples
from convert_tf.data.packing import TokenIds
from convert_tf.data.ranking_batches import NegativeSampler, tokenize_examples
from convert_tf.data.tasks import article_search
from convert_tf.data.tasks.formats import task_format_of

DATA = Path(__file__).parents[4] / "shared/data/tasks"


def written(tmp_path, lines, name="file.txt"):
    path = tmp_path / name
    path.write_text(lines if isinstance(lines, str) else "\n".join([*lines, ""]))
    return path


# For each format, its name and the lines of a file.
ITEMS = task_files.dstc7_items()
FILES = {
    "convai2": task_files.convai2(),
    "convai2 without candidates": task_files.convai2(candidates=False),
    "dstc7": task_files.dstc7(task_files.dstc7_items()).splitlines(),
    "dstc7 lines": [json.dumps(item) for item in task_files.dstc7_items()],
    "dstc7 in one line": [json.dumps(task_files.dstc7_items())],
    "dstc7 list of lines": ["[", *",\n".join(map(json.dumps, ITEMS)).splitlines(), "]"],
    "ubuntu lines": task_files.labelled_turns(),
    "ubuntu csv": task_files.ubuntu_csv(),
    "ubuntu train csv": task_files.UBUNTU_TRAIN,
    "wikiqa tsv": task_files.wikiqa_tsv(),
    "wikiqa txt": task_files.wikiqa_txt(),
    "article_search": task_files.articles(),
}


@pytest.mark.parametrize("name", FILES)
def test_a_format_is_recognised_by_its_first_lines(name):
    assert task_format_of(FILES[name]).name == name.split()[0]


@pytest.mark.parametrize(
    "head",
    [
        [],
        ['{"context": ["a"], "candidates": ["b"], "label": 0}'],
        ["question,answer", "is it open ?,until nine"],
        ["is it open ?\tuntil nine", "where is it ?\there"],
        ["1 apple", "2 pears"],
        ["text"],
        ["1\ta", "2\tb"],
    ],
)
def test_other_files_are_no_task(head):
    assert task_format_of(head) is None


def test_convai2_by_hand(tmp_path):
    found = list(read_candidates(written(tmp_path, task_files.convai2())))
    assert len(found) == 4
    first, second, third, _ = found
    (message, reply), (message_2, reply_2) = TURNS
    assert first.turns == (*PERSONA, f"{message} 0")
    assert first.candidates == (*OTHERS, reply)
    assert first.labels == (3,)
    assert second.turns == (*first.turns, reply, f"{message_2} 0")
    assert second.candidates[second.labels[0]] == reply_2
    assert third.turns == (*PERSONA, f"{message} 1")  # nothing from the earlier dialogue
    without = list(read_candidates(written(tmp_path, task_files.convai2(candidates=False))))
    assert [one.turns for one in without] == [one.turns for one in found]
    assert [(one.candidates, one.labels) for one in without[:1]] == [((reply,), (0,))]


def test_silence_line_breaks_and_a_reply_that_is_there_twice(tmp_path):
    lines = ["1 your persona: i bake.", "2 __SILENCE__\thi\\nyou\t\thi\\nyou|no|hi\\nyou"]
    (found,) = read_candidates(written(tmp_path, lines))
    assert found == (("your persona: i bake.",), ("hi\nyou", "no", "hi\nyou"), (0, 2))


@pytest.mark.parametrize(
    "name", ["dstc7", "dstc7 lines", "dstc7 in one line", "dstc7 list of lines"]
)
def test_dstc7_by_hand(tmp_path, name):
    found = list(read_candidates(written(tmp_path, FILES[name])))
    assert [one.turns for one in found] == [
        ("the disk 0 is full", "which one ?"),
        ("the disk 1 is full", "which one ?"),
    ]
    assert found[1].candidates == ("answer 10", "answer 11", "answer 12", "answer 13")
    assert [one.labels for one in found] == [(1,), (1,)]


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_answers_of_a_dstc7_test_file_are_in_another_file(tmp_path, suffix):
    items = task_files.dstc7_items()
    for item in items:
        del item["options-for-correct-answers"]
    path = written(tmp_path, task_files.dstc7(items), "ubuntu_test_subtask_1.json")
    with pytest.raises(ValueError, match=r"ubuntu_responses_subtask_1\.tsv does not exist"):
        list(read_candidates(path))
    answers = tmp_path / f"ubuntu_responses_subtask_1.tsv{suffix}"
    pack = gzip.compress if suffix else bytes
    answers.write_bytes(pack(b'100\tC02\tits text, with a " quote\n101\tC10\tanother\n'))
    assert [one.labels for one in read_candidates(path)] == [(2,), (0,)]
    answers.write_bytes(pack(b"100\tC02\ttext\n"))
    with pytest.raises(ValueError, match=r"json:\d+: Example 101 has no correct answer"):
        list(read_candidates(path))
    answers.write_bytes(pack(b"100\n"))
    with pytest.raises(ValueError, match=r"tsv.*:1 has no candidate id"):
        list(read_candidates(path))
    other = written(tmp_path, task_files.dstc7(items), "mine.json")
    with pytest.raises(ValueError, match=r"mine\.json.*Only test files have"):
        list(read_candidates(other))


def test_labelled_turns_by_hand(tmp_path):
    lines = [*task_files.labelled_turns(), "0\tno right one\tyes\tno", "0\tno right one\tyes\tnot"]
    found = list(read_candidates(written(tmp_path, lines)))
    assert [one.turns for one in found] == [
        ("my screen 0 is black", "is it on ?"),
        ("my screen 1 is black", "is it on ?"),
    ]
    assert found[0].candidates == ("answer 00", "answer 01", "answer 02", "answer 03")
    assert found[0].labels == (0,)


def test_labelled_turns_of_two_examples_with_the_same_context(tmp_path):
    examples = list(read_candidates(written(tmp_path, SAME_CONTEXT)))
    assert [(one.turns, one.candidates, one.labels) for one in examples] == [
        (("good day",), ("r0", "a", "b"), (0,)),
        (("is it open ?",), ("r1", "c", "d"), (0,)),
        (("is it open ?",), ("r2", "e", "f"), (0,)),
    ]


def test_ubuntu_v2_by_hand(tmp_path):
    found = list(read_candidates(written(tmp_path, task_files.ubuntu_csv(), "test.csv")))
    assert [one.turns for one in found] == [
        ("my screen, 0 is black", "is it on ?"),
        ("my screen, 1 is black", "is it on ?"),
    ]
    assert found[1].candidates == ("answer 10", "answer 11", "answer 12", "answer 13")
    assert [one.labels for one in found] == [(0,), (0,)]
    path = written(tmp_path, task_files.UBUNTU_TRAIN, "train.csv")
    assert list(read_candidates(path)) == [
        (("is it open ?",), ("until nine", "i have a cat"), (0,)),
        (("where is it ?", "here"), ("thanks bye",), (0,)),
    ]


@pytest.mark.parametrize("name", ["wikiqa tsv", "wikiqa txt"])
def test_wikiqa_by_hand(tmp_path, name, capsys):
    path = written(tmp_path, FILES[name])
    found = list(read_candidates(path))
    assert found == [
        (("who is ada ?",), ('Ada is "a dog.', "Ada was a poet."), (0,)),
        (("what is bread ?",), ("Bread is baked.", "Bread sings.", "It is made of flour."), (0, 2)),
    ]
    assert capsys.readouterr().out == f"{path}: not used: 1 no_right_answer\n"


def test_other_sentence_ids_of_wikiqa_are_not_checked(tmp_path):
    lines = [re.sub(r"\tD\d-(\d)\t", r"\tS\1\t", line) for line in dropped(TSV, 6)]
    assert [len(one.candidates) for one in read_candidates(written(tmp_path, lines))] == [2, 2]


def test_an_article_is_searched_by_one_of_its_sentences(tmp_path):
    lines = ["Only one sentence.", *task_files.articles()]
    found = list(read_candidates(written(tmp_path, lines)))
    assert [one.labels for one in found] == [(0,), (1,), (2,)]
    for example, sentences in zip(found, task_files.ARTICLES, strict=True):
        (query,) = example.turns
        rest = " ".join(sentence for sentence in sentences if sentence != query)
        assert query in sentences
        assert example.candidates[example.labels[0]] == rest
        assert example.candidates is found[0].candidates
    # The selection of sentences does not depend on the order of the file.
    backwards = list(read_candidates(written(tmp_path, lines[::-1])))
    assert [one.turns for one in backwards] == [one.turns for one in found[::-1]]


def test_articles_are_searched_among_a_fixed_number(tmp_path, monkeypatch):
    monkeypatch.setattr(article_search, "NUM_CANDIDATES", 3)
    lines = [f"A{number}.\tB{number}." + "\tC." * (number % 2) for number in range(8)]
    found = list(read_candidates(written(tmp_path, lines)))
    rights = [one.candidates[one.labels[0]] for one in found]
    assert [len(one.candidates) for one in found] == [3] * 8
    assert [place for (place,) in (one.labels for one in found)] == [0, 1, 2, 0, 1, 2, 1, 2]
    assert list(found[6].candidates) == rights[5:]
    assert [one.turns[0][1] for one in found if one.turns[0] != "C."] == [
        str(number) for number, one in enumerate(found) if one.turns[0] != "C."
    ]


def dropped(lines, number):
    return [line for place, line in enumerate(lines, 1) if place != number]


def changed(lines, number, old, new):
    assert old in lines[number - 1]
    return [
        line.replace(old, new) if place == number else line for place, line in enumerate(lines, 1)
    ]


CONVAI2, DSTC7, TURNS_, TXT, TSV = (
    FILES[name] for name in ("convai2", "dstc7", "ubuntu lines", "wikiqa txt", "wikiqa tsv")
)
SAME_CONTEXT = [
    *("1\tgood day\tr0", "0\tgood day\ta", "0\tgood day\tb"),
    *("1\tis it open ?\tr1", "0\tis it open ?\tc", "0\tis it open ?\td"),
    *("1\tis it open ?\tr2", "0\tis it open ?\te", "0\tis it open ?\tf"),
]
FEWER = [ITEMS[0], {**ITEMS[1], "options-for-next": ITEMS[1]["options-for-next"][:3]}]
WRONG_ANSWER = [ITEMS[0], {**ITEMS[1], "options-for-correct-answers": [{"candidate-id": "X"}]}]
WRONG = {
    "convai2, a line is missing": (dropped(CONVAI2, 7), r":7: Line 3 of the dialogue is missing"),
    "convai2, the first line of a dialogue is missing": (dropped(CONVAI2, 5), ":5: .*missing"),
    "convai2, no number": (changed(CONVAI2, 7, "3 ", ""), ":7: .*number"),
    "convai2, a number of 5,000 digits": (
        changed(CONVAI2, 7, "3 ", "3" * 5_000 + " "),
        ":7: .*number",
    ),
    "convai2, no reply": (changed(CONVAI2, 7, "\t", " "), ":7: .*no reply"),
    "convai2, the reply is no candidate": (
        changed(CONVAI2, 8, "|a dog called ada .", ""),
        ":8: The reply 'a dog called ada .' is not among its 3 candidates",
    ),
    "convai2, a candidate is missing": (
        changed(CONVAI2, 8, "i never sing .|", ""),
        r":8: Example number 4 .*3 candidates, but example number 1 \(line 3\) has 4\.",
    ),
    "dstc7, a line is missing": (dropped(DSTC7, 8), r":2: The example that starts in line 2"),
    "dstc7, a bracket is missing": (dropped(DSTC7, 40), "file.txt:"),
    "dstc7, cut off": (DSTC7[:50], r":50: The JSON ends too early within the example"),
    "dstc7, the end is missing": (DSTC7[:-1], "The JSON ends too early"),
    "dstc7 in one line, cut off": ([FILES["dstc7 in one line"][0][:-20]], "is not JSON"),
    "dstc7 lines, cut off": (
        [*FILES["dstc7 lines"][:1], FILES["dstc7 lines"][1][:-20]],
        ":2: .* is not JSON",
    ),
    "dstc7, the answer is no candidate": (
        task_files.dstc7(WRONG_ANSWER),
        "Example 101: its answer X is not among its 4 candidates",
    ),
    "dstc7, a candidate is missing": (task_files.dstc7(FEWER), "3 candidates, .* has 4"),
    "dstc7 lines, the first example lacks a candidate": (
        [json.dumps(one) for one in task_files.dstc7_items(3, fewer_in=(0,))],
        r":2: Example number 2 .* 4 candidates, but example number 1 \(line 1\) has 3\.",
    ),
    "dstc7 in one line, a candidate is missing": (
        [json.dumps(FEWER)],
        "file.txt:1: Example number 2 of the file has 3 candidates",
    ),
    "dstc7, no messages": (
        task_files.dstc7([ITEMS[0], {"example-id": 7, "options-for-next": []}]),
        "no 'messages-so-far'",
    ),
    "dstc7, an entry is no object": (task_files.dstc7([ITEMS[0], 7]), "file.txt:"),
    "ubuntu, a line is missing": (dropped(TURNS_, 7), r":5: .*3 candidates, .* has 4"),
    "ubuntu, a candidate too many for the same context": (
        [*SAME_CONTEXT, "0\tis it open ?\tone more"],
        r":7: .*4 candidates, but example number 1 \(line 1\) has 3",
    ),
    "ubuntu, no label": (changed(TURNS_, 6, "0\t", ""), ":6: .*label"),
    "ubuntu csv, a candidate is missing": (
        changed(FILES["ubuntu csv"], 3, ",answer 13 __eou__", ""),
        ":3: .*fewer columns",
    ),
    "ubuntu csv, a distractor is empty": (
        changed(FILES["ubuntu csv"], 3, "answer 12 __eou__", " "),
        ":3: The row has an empty cell in the column distractor_1",
    ),
    "ubuntu csv, a quote does not close": (
        changed(FILES["ubuntu csv"], 3, '__eot__"', "__eot__"),
        "line 3, has a quote",
    ),
    "ubuntu train csv, another label": (
        changed(FILES["ubuntu train csv"], 3, ",0", ",x"),
        ":3: .*label",
    ),
    "wikiqa, a cell is missing": (changed(TSV, 3, "D1-1\t", ""), ":3: .*label"),
    "wikiqa, the first sentence is missing": (dropped(TSV, 2), r":2: .* D1-1, not D1-0"),
    "wikiqa, the only right sentence is missing": (dropped(TSV, 5), r":5: .* D3-1, not D3-0"),
    "wikiqa, a sentence is missing": (dropped(TSV, 6), r":6: The SentenceID is D3-2, not D3-1"),
    "wikiqa, a sentence is there twice": ([*TSV, TSV[-1]], r":8: .* D3-2, not D3-3"),
    "wikiqa, another label": (changed(TXT, 2, "\t0", "\t7"), ":2: .*label"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_files_are_refused_in_a_sentence_with_the_line(tmp_path, name):
    lines, message = WRONG[name]
    with pytest.raises(ValueError, match=message) as refused:
        list(read_candidates(written(tmp_path, lines)))
    assert "file.txt" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_sentence_id_of_5_000_digits_is_not_checked(tmp_path):
    expected = list(read_candidates(written(tmp_path, TSV)))
    lines = changed(TSV, 3, "D1-1", "D1-" + "1" * 5_000)
    assert list(read_candidates(written(tmp_path, lines))) == expected


@pytest.mark.parametrize("name", FILES)
def test_another_encoding_is_refused_with_the_line(tmp_path, name):
    lines = list(FILES[name])
    place = max(place for place, line in enumerate(lines[:7], 1) if "a" in line)
    lines[place - 1] = lines[place - 1].replace("a", "\xe4")
    path = tmp_path / "file.txt"
    path.write_bytes("\n".join([*lines, ""]).encode("latin-1"))
    with pytest.raises(ValueError, match=rf"file\.txt, line {place},? is not UTF-8"):
        list(read_candidates(path))


@pytest.mark.parametrize("name", FILES)
def test_carriage_returns_blank_lines_and_archives_change_nothing(tmp_path, name):
    expected = list(read_candidates(written(tmp_path, FILES[name])))
    path = tmp_path / "file.txt.zst"
    text = "\r\n\r\n".join([*FILES[name], ""])
    path.write_bytes(zstandard.ZstdCompressor().compress(b"\xef\xbb\xbf" + text.encode()))
    assert list(read_candidates(path)) == expected


def test_a_file_of_no_known_format_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"file\.txt has no columns for contexts, candidates"):
        list(read_candidates(written(tmp_path, ["question,answer", "is it open ?,yes"])))


def token_ids(texts, max_tokens, keeps_last):
    """Convert each text to one token, its length."""
    lengths = np.array([len(text) for text in texts], np.int32)
    return TokenIds(lengths, np.arange(len(texts) + 1))


def test_rankers_are_trained_on_the_given_candidates(tmp_path):
    path = written(tmp_path, task_files.convai2())
    examples = tokenize_examples(
        read_examples(path, "train", max_examples=3),
        token_ids,
        max_context_tokens=9,
        max_candidate_tokens=9,
    )
    context = " ".join([*PERSONA, f"{TURNS[0][0]} 0"])
    assert examples.contexts.flat[0] == len(context)
    sampler = NegativeSampler(examples, source="given", count=19)
    assert sampler.most == len(OTHERS)
    drawn = examples.pool.flat[sampler.draw(0, np.random.default_rng(0))]
    assert sorted(drawn) == sorted(map(len, OTHERS))


def test_articles_of_a_block_share_their_candidates(tmp_path):
    examples = tokenize_examples(
        read_examples(written(tmp_path, task_files.articles()), "train"),
        token_ids,
        max_context_tokens=9,
        max_candidate_tokens=9,
    )
    assert all(one is examples.candidates[0] for one in examples.candidates)
    assert [one.tolist() for one in examples.labels] == [[0], [1], [2]]
    assert len(examples.pool.flat) == 3


real_data = pytest.mark.skipif(not DATA.is_dir(), reason="the tasks' files are not there")
# Number of examples, candidates per example (None if they differ), and all correct candidates.
REAL = {
    "convai2/valid_self_original.txt.zst": (7801, 20, 7801),
    "convai2/valid_self_original_no_cands.txt.zst": (7801, 1, 7801),
    "convai2/train_self_original.first10000.txt.zst": (10_000, 20, 10_000),
    "convai2/train_self_original_no_cands.first10000.txt.zst": (10_000, 1, 10_000),
    "convai2/train_self_original.genuine_candidates_sample.txt": (5, 20, 5),
    "convai2/valid_self_original.genuine_candidates_sample.txt": (5, 20, 5),
    "dstc7/advising_dev_subtask_1.decoded_sample.json": (1, 100, 1),
    "dstc7/ubuntu_dev_subtask_1.genuine_sample.json": (5, 21, 5),
    "dstc7/ubuntu_train_subtask_1.standin.json.zst": (1500, 100, 1500),
    "dstc7/ubuntu_dev_subtask_1.standin.json.zst": (300, 100, 300),
    "dstc7/ubuntu_test_subtask_1.standin.json.zst": (618, 100, 618),
    "ubuntu_v2/valid.genuine_one_row_stemmed.csv": (1, 10, 1),
    "ubuntu_v2/test.genuine_one_row_stemmed.csv": (1, 10, 1),
    "ubuntu_v2/valid.standin.csv.zst": (704, 10, 704),
    "ubuntu_v2/test.standin.csv.zst": (1396, 10, 1396),
    "ubuntu_v2/v1_layout_train.standin.txt.zst": (3000, 2, 3000),
    "ubuntu_v2/v1_layout_valid.standin.txt.zst": (704, 10, 704),
    "ubuntu_v2/v1_layout_test.standin.txt.zst": (1396, 10, 1396),
    "wikiqa/WikiQA-train.txt.zst": (873, None, 1040),
    "wikiqa/WikiQA-dev.txt.zst": (126, None, 140),
    "wikiqa/WikiQA-dev.tsv.zst": (126, None, 140),
    "wikiqa/WikiQA-test.txt.zst": (243, None, 293),
    "wikiqa/WikiQA-test.tsv.zst": (243, None, 293),
    "wikipedia_search/articles_dev.labeldoc.txt.zst": (265, 265, 265),
    "wikipedia_search/articles_test.labeldoc.txt.zst": (560, 560, 560),
}


@real_data
@pytest.mark.real_data
@pytest.mark.parametrize("name", REAL)
def test_the_files_of_the_tasks(name):
    found = list(read_candidates(DATA / name))
    sizes = Counter(len(one.candidates) for one in found)
    size = next(iter(sizes)) if len(sizes) == 1 else None
    assert (len(found), size, sum(len(one.labels) for one in found)) == REAL[name]
    assert all(one.turns for one in found)


@real_data
@pytest.mark.real_data
@pytest.mark.parametrize(
    ("name", "message"),
    [
        # A decoded item lacks its correct answer, and sample files are cut at odd positions.
        ("dstc7/advising_train_subtask_1.decoded_sample.json.zst", r":421: Example 2 has no"),
        ("dstc7/ubuntu_train_subtask_1.genuine_sample.json.zst", "20 candidates, .* has 21"),
    ],
)
def test_files_of_the_tasks_with_faults_are_refused(name, message):
    with pytest.raises(ValueError, match=message):
        list(read_candidates(os.fspath(DATA / name)))
