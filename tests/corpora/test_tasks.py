"""The papers' tasks as training data: correct answers, and splits that keep dialogues whole."""

import json

import pytest
from support import task_files
from support.record_files import read_examples
from support.task_files import ARTICLES, PERSONA, TURNS

from convert_tf.corpora import pairs
from convert_tf.corpora.dumps import CountedFile
from convert_tf.corpora.local import prepare
from convert_tf.corpora.options import CORPORA, PrepareOptions
from convert_tf.data.shards import record_files
from convert_tf.evaluation.compare import make_task

FILES = {
    "convai2": task_files.convai2(),
    "dstc7": task_files.dstc7(task_files.dstc7_items()).splitlines(),
    "ubuntu": task_files.labelled_turns(),
    "wikiqa": task_files.wikiqa_tsv(),
}


def written(tmp_path, lines, name="file.txt"):
    path = tmp_path / name
    path.write_text("\n".join([*lines, ""]))
    return str(path)


def read(name, path):
    file = CountedFile(path)
    conversations = list(CORPORA[name].read(file))
    assert all(one.first_answer == len(one.turns) - 1 for one in conversations)
    texts = [tuple(turn.text for turn in one.turns) for one in conversations]
    return texts, [one.id for one in conversations], file


def test_each_reply_of_convai2_is_one_example_after_the_persona(tmp_path):
    (message, reply), (message_2, reply_2) = TURNS
    texts, ids, file = read("convai2", written(tmp_path, task_files.convai2()))
    first = (*PERSONA, f"{message} 0", reply)
    assert texts[:2] == [first, (*first, f"{message_2} 0", reply_2)]
    assert (len(texts), file.skipped) == (4, {})
    assert ids[0] == ids[1] != ids[2] == ids[3]


def test_both_views_of_a_dialogue_are_in_one_split(tmp_path):
    lines = ["1 your persona: a.", "2 hi\tho", "3 how\tso", "1 your persona: b.",
             "2 __SILENCE__\thi", "3 ho\thow"]  # fmt: skip
    texts, ids, _ = read("convai2", written(tmp_path, lines))
    assert texts[2:] == [("your persona: b.", "hi"), ("your persona: b.", "hi", "ho", "how")]
    assert len({*ids}) == 1


def test_all_right_answers_of_a_question_are_examples(tmp_path):
    texts, ids, file = read("wikiqa", written(tmp_path, task_files.wikiqa_txt()))
    assert texts == [
        ("who is ada ?", 'Ada is "a dog.'),
        ("what is bread ?", "Bread is baked."),
        ("what is bread ?", "It is made of flour."),
    ]
    assert ids[0] != ids[1] == ids[2]
    assert file.skipped == {"no_right_answer": 1}
    assert not file.num_bad


def test_a_missing_sentence_of_a_question_is_counted_once(tmp_path):
    header, *rows = task_files.wikiqa_tsv()
    texts, _, file = read("wikiqa", written(tmp_path, [header, *rows[:4], *rows[5:]]))
    assert texts[1:] == [
        ("what is bread ?", "Bread is baked."),
        ("what is bread ?", "It is made of flour."),
    ]
    assert file.skipped == {"missing_sentence": 1, "no_right_answer": 1}
    assert file.first_bad == f"{file.path}:6 (missing_sentence)"
    unlabelled = [line.removesuffix("\t1") for line in rows]
    _, _, file = read("wikiqa", written(tmp_path, [header, unlabelled[0], *rows[1:]]))
    assert file.skipped == {"malformed_line": 1, "no_right_answer": 2}


def test_a_sentence_and_its_article_are_an_example(tmp_path):
    lines = [*task_files.articles(), "One sentence."]
    texts, ids, file = read("article_search", written(tmp_path, lines))
    for (sentence, rest), article in zip(texts, ARTICLES, strict=True):
        assert rest == " ".join(one for one in article if one != sentence)
    assert len({*ids}) == 3
    assert file.skipped == {"too_few_sentences": 1}


def test_what_cannot_be_used_is_counted_with_its_line(tmp_path):
    lines = task_files.convai2(dialogues=3)
    broken = [*lines[:5], lines[6], lines[7], *lines[8:]]  # without line 2 of the second dialogue
    texts, _, file = read("convai2", written(tmp_path, broken))
    assert (len(texts), file.skipped) == (4, {"missing_line": 1})
    assert file.bad_lines.first == [f"{file.path}:6 (missing_line)"]
    lines[7] = lines[7].replace("|a dog called ada .", "")
    texts, _, file = read("convai2", written(tmp_path, lines))
    assert (len(texts), file.skipped) == (5, {"right_answer_missing": 1})
    path = tmp_path / "latin.txt"
    path.write_bytes("\n".join(task_files.convai2()).replace("ada", "\xe4da", 1).encode("latin-1"))
    _, _, file = read("convai2", str(path))
    assert file.skipped == {"invalid_utf8": 1, "missing_line": 1}
    with pytest.raises(ValueError, match=r"cut\.json:30: The JSON ends too early"):
        read("dstc7", written(tmp_path, FILES["dstc7"][:30], "cut.json"))


@pytest.mark.parametrize(
    ("name", "lines", "message"),
    [
        (
            "dstc7",
            [json.dumps(one) for one in task_files.dstc7_items(3, fewer_in=(1, 2))],
            "line 2: Example number 2 of the file has 3 candidates, but example number 1 "
            "(line 1) has 4. Examples like this: 2.",
        ),
        (
            "ubuntu",
            [line for line in task_files.labelled_turns() if not line.endswith("answer 01")],
            "line 4: Example number 2 of the file has 4 candidates, but example number 1 "
            "(line 1) has 3. Examples like this: 1.",
        ),
    ],
)
def test_another_number_of_candidates_is_said(tmp_path, capsys, name, lines, message):
    path = written(tmp_path, lines)
    _, _, file = read(name, path)
    expected = f"{path}: {message} Their correct answers are used."
    assert (file.warnings, file.skipped) == ([expected], {})
    prepare([], str(tmp_path / "data"), corpora={name: [path]})
    assert f"warning: {expected}\n" in capsys.readouterr().err


@pytest.mark.parametrize("name", FILES)
def test_files_of_pairs_may_be_of_a_task(tmp_path, name):
    path = written(tmp_path, FILES[name], "mine.txt")
    expected = list(CORPORA[name].read(CountedFile(path)))
    assert list(pairs.read(CountedFile(path))) == expected


def test_no_example_is_lost_and_no_persona_is_an_answer(tmp_path):
    path = written(tmp_path, task_files.convai2(dialogues=30))
    options = PrepareOptions(num_shards={"train": 1, "dev": 1, "test": 1})
    output = str(tmp_path / "data")
    report = prepare([], output, corpora={"convai2": [path]}, options=options)
    assert sum(one["examples"] for one in report["splits"].values()) == 60
    examples = read_examples(record_files(output))
    assert {one["response"].decode() for one in examples} == {reply for _, reply in TURNS}
    assert all(PERSONA[0].encode() in one["extra_contexts"] for one in examples)


def test_files_without_candidates_are_ranked_in_blocks(tmp_path):
    path = written(tmp_path, task_files.convai2(candidates=False, dialogues=5))
    with pytest.raises(ValueError, match=r"file\.txt contains no wrong candidates.*--data"):
        make_task(candidates=path)
    task = make_task(data=path, block_size=10)
    examples = [one for _, one in task.examples]
    assert len(examples) == 10
    assert {one.turns[:2] for one in examples} == {tuple(PERSONA)}
