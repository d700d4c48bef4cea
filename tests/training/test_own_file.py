import csv
import json
import math
from pathlib import Path

import pytest
from support.commands import call_command
from support.encoder_runs import rows_of
from support.full_disk import room_for

from convert_tf.checkpoints.configs import load_config
from convert_tf.checkpoints.loading import trained_scale
from convert_tf.checkpoints.released import module_path
from convert_tf.config.train import TRAIN_RECIPES
from convert_tf.training import own_file
from convert_tf.training.encoder.options import EncoderTraining, chosen_options, train_recipe
from convert_tf.training.own_file import OwnFile, prepare_own_file


def _faq(path, number):
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["question", "answer"])
        for n in range(number):
            writer.writerow([f"what is thing {n}?", f"it is {n}, as it ever was"])
    return str(path)


def _prepare(path, run, **options):
    return prepare_own_file(
        str(path), str(run), **{"vocabulary": None, "learns_vocabulary": True, **options}
    )


def test_a_csv_becomes_data_and_a_vocabulary(tmp_path, capsys):
    own = _prepare(_faq(tmp_path / "faq.csv", 1000), tmp_path / "run")
    report = json.loads((tmp_path / "run" / "data" / "report.json").read_text())
    numbers = {split: one["examples"] for split, one in report["splits"].items()}
    assert sum(numbers.values()) == 1000
    assert 130 < numbers["dev"] < 270  # 200 are requested
    data, vocabulary = (str(tmp_path / "run" / name) for name in ("data", "vocab.txt"))
    assert own == OwnFile(data, vocabulary, ("dev",), numbers["train"])
    assert "﹏thing" in (tmp_path / "run" / "vocab.txt").read_text()
    assert f"train examples            {numbers['train']:>10}\n" in capsys.readouterr().out


def test_repeated_rows_do_not_make_the_dev_split_too_small(tmp_path, monkeypatch):
    """The first fraction is that of all rows; the second, that of the pairs that remain."""
    path = Path(_faq(tmp_path / "faq.csv", 1000))
    expected = _prepare(path, tmp_path / "once")
    header, *rows = path.read_text().splitlines()
    path.write_text("\n".join([header, *10 * rows]) + "\n")
    prepare, fractions = own_file.prepare, []

    def recorded(*arguments, options, **others):
        fractions.append(options.dev_fraction)
        return prepare(*arguments, options=options, **others)

    monkeypatch.setattr(own_file, "prepare", recorded)
    repeated = _prepare(path, tmp_path / "run")
    assert fractions == [pytest.approx(0.02), pytest.approx(0.2)]
    assert repeated.eval_splits == ("dev",)
    assert repeated.num_train == expected.num_train


def test_a_prepared_file_is_found_again_and_another_one_refused(tmp_path):
    path = _faq(tmp_path / "faq.csv", 50)
    first = _prepare(path, tmp_path / "run")
    times = {p: p.stat().st_mtime_ns for p in (tmp_path / "run").rglob("*") if p.is_file()}
    assert _prepare(path, tmp_path / "run") == first
    assert times == {p: p.stat().st_mtime_ns for p in times}
    _faq(tmp_path / "faq.csv", 51)
    with pytest.raises(ValueError, match="was made from a file other than"):
        _prepare(path, tmp_path / "run")


@pytest.mark.parametrize("version", ["new", "earlier"])
def test_an_interruption_between_two_preparations_changes_nothing(tmp_path, monkeypatch, version):
    """Data is prepared again without a dev split that is too small, even after an interruption."""
    monkeypatch.setattr(own_file, "BLOCK_SIZE", 1_000)
    path, run = _faq(tmp_path / "faq.csv", 700), tmp_path / "run"
    complete = _prepare(path, tmp_path / "complete")
    assert complete.eval_splits == ()
    if version == "earlier":  # source.json was written first
        run.mkdir()
        (run / "source.json").write_bytes((tmp_path / "complete/source.json").read_bytes())
    prepare, calls = own_file.prepare, []

    def interrupted(*arguments, **options):
        calls.append(options)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return prepare(*arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(own_file, "prepare", interrupted)
        with pytest.raises(KeyboardInterrupt):
            _prepare(path, run)
    assert sorted(one.name for one in run.iterdir()) == ["data", "source.json"]
    assert json.loads((run / "source.json").read_text())["complete"] is False
    with pytest.raises(ValueError, match="was made from a file other than"):
        _prepare(_faq(tmp_path / "other.csv", 50), run)
    resumed = _prepare(path, run)
    assert (resumed.num_train, resumed.eval_splits) == (complete.num_train, ())
    for name in ("run", "complete"):
        source = json.loads((tmp_path / name / "source.json").read_text())
        assert sorted(source) == ["file", "sha256"]


def test_data_that_train_did_not_write_is_kept(tmp_path):
    """`prepare` may have written the data from a file of the same name."""
    path, run = _faq(tmp_path / "faq.csv", 50), tmp_path / "run"
    call_command("prepare", "--pairs", path, "--output", run / "data")
    before = {file: file.read_bytes() for file in run.rglob("*") if file.is_file()}
    assert before
    with pytest.raises(ValueError, match="was made from a file other than"):
        _prepare(path, run)
    assert before == {file: file.read_bytes() for file in run.rglob("*") if file.is_file()}


def test_a_second_command_does_not_change_what_the_data_was_made_from(tmp_path, monkeypatch):
    path, other, run = (tmp_path / name for name in ("faq.csv", "other.csv", "run"))
    _faq(path, 50)
    _faq(other, 51)
    prepare = own_file.prepare

    def meanwhile(*arguments, **options):
        with pytest.raises(ValueError, match="Another process is writing"):
            _prepare(other, run)
        return prepare(*arguments, **options)

    monkeypatch.setattr(own_file, "prepare", meanwhile)
    first = _prepare(path, run)
    assert json.loads((run / "source.json").read_text())["file"] == "faq.csv"
    assert _prepare(path, run) == first
    with pytest.raises(ValueError, match="was made from a file other than"):
        _prepare(other, run)


def test_an_unusable_file_can_be_repaired(tmp_path):
    path = tmp_path / "faq.csv"
    path.write_text("a,b,c\n1,2,3\n")
    with pytest.raises(ValueError, match="no columns for contexts"):
        _prepare(path, tmp_path / "run")
    path.write_text("question,answer\n1,2,3\n4,5,6\n")
    with pytest.raises(ValueError, match="Hardly any line") as error:
        _prepare(path, tmp_path / "run")
    assert "--max_bad_lines" not in str(error.value), "`train` does not have this flag."
    assert _prepare(_faq(path, 20), tmp_path / "run").num_train > 0


# The file size limit in bytes, and the first file that exceeds it.
@pytest.mark.parametrize(
    ("room", "begun"), [(10, "source.json"), (3_000, "data"), (700, "vocab.txt")]
)
def test_a_full_disk_is_said_in_one_line_and_leaves_nothing_half(tmp_path, capsys, room, begun):
    """A full disk, simulated by a limit on file sizes, gives one error and no partial files."""
    path, run = _faq(tmp_path / "faq.csv", 200), tmp_path / "run"
    command = ["train", "--data", path, "--model", "tiny", "--output", run]
    if begun == "vocab.txt":
        _prepare(path, run, learns_vocabulary=False)
    before = {each: each.read_bytes() for each in run.rglob("*") if each.is_file()}
    with room_for(room), pytest.raises(SystemExit) as caught:
        call_command(*command)
    capsys.readouterr()  # captured in memory, because the limit also applies to pytest's own files
    said = str(caught.value)
    assert "File too large. Nothing new was left" in said
    assert begun in said and "\n" not in said and len(said) < 500
    source = {run / "source.json"} if begun == "data" else set()
    assert {each for each in run.rglob("*") if each.is_file()} == {*before, *source}
    assert all(each.read_bytes() == content for each, content in before.items())
    assert {each.name for each in tmp_path.iterdir()} == {"faq.csv", "run"}
    assert _prepare(path, run).num_train > 150


def test_a_recipe_for_complete_options_is_refused(tmp_path):
    options = {"output": str(tmp_path / "run"), "vocabulary": None, "init_from": None}
    with pytest.raises(ValueError, match="recipe small would overwrite"):
        chosen_options("tiny", EncoderTraining(data="x"), recipe="small", **options)


def test_fine_tuning_as_the_paper_keeps_the_scale_of_its_model(tmp_path):
    module = module_path("convert_small")
    data = str(_faq(tmp_path / "faq.csv", 50))
    command = ["train", "--recipe", "paper_finetune", "--data", data]
    with pytest.raises(SystemExit, match="starts from a trained model"):
        call_command(*command, "--output", tmp_path / "none", "--model", "tiny")
    _, config, _ = chosen_options(
        None, {"data": data}, output=str(tmp_path / "run"), vocabulary=None,
        init_from=str(module), recipe="paper_finetune",
    )  # fmt: skip
    assert config.scale_start == config.scale_end == trained_scale(module)
    assert config.scale_end != train_recipe("paper_finetune").scale_end


def test_few_pairs_are_all_for_training(tmp_path, capsys):
    own = _prepare(_faq(tmp_path / "faq.csv", 300), tmp_path / "run")
    assert own.eval_splits == ()
    assert own.num_train > 240  # a tenth is in the test split
    assert "no evaluation" in capsys.readouterr().out


def test_rows_that_are_not_used_are_named(tmp_path, capsys):
    path = tmp_path / "faq.csv"
    path.write_text("question,answer\n" + "why?,because\nhow?,so, and so\n" * 20)
    _prepare(path, tmp_path / "run")
    printed = capsys.readouterr().out
    assert f"{path}:3 (too_many_columns)" in printed
    counts = [line.rsplit(maxsplit=1) for line in printed.splitlines()]
    assert ["skipped: too_many_columns", "20"] in counts
    assert ["dropped: duplicate_pair", "19"] in counts


def test_dialogues_without_limits(tmp_path):
    path = tmp_path / "chats.jsonl"
    turns = [[f"opening number {n}", f"no {n}", "yes " * 99 + str(n)] for n in range(40)]
    path.write_text("".join(json.dumps({"turns": one}) + "\n" for one in turns))
    own = _prepare(path, tmp_path / "run")
    report = json.loads((Path(own.data) / "report.json").read_text())
    assert report["history"][:2] == [40, 40]


def test_a_vocabulary_that_is_given_or_comes_with_a_checkpoint(tmp_path):
    path = _faq(tmp_path / "faq.csv", 50)
    assert _prepare(path, tmp_path / "a", vocabulary="mine.txt").vocabulary == "mine.txt"
    assert _prepare(path, tmp_path / "b", learns_vocabulary=False).vocabulary is None
    assert not (tmp_path / "b" / "vocab.txt").exists()


@pytest.mark.parametrize("num_train", [4, 100, 3_000, 1_000_000])
def test_sizes(num_train):
    sizes = OwnFile("data", None, (), num_train).sizes()
    config = train_recipe("small", **sizes)
    assert config.batch_size == max(2, min(128, num_train // 2))
    epochs = math.ceil(10 * num_train / config.batch_size)
    assert config.steps == min(max(300, epochs), 4_000)
    assert config.warmup_steps < config.steps
    assert OwnFile("data", None, (), num_train).sizes(2)["batch_size"] == 2
    assert config.eval_every == config.checkpoint_every <= config.steps // 4


def test_recipes():
    assert train_recipe("paper") == EncoderTraining()
    small = train_recipe("small", seed=3)
    assert (small.optimizer, small.l2, small.seed) == ("adam", 0.0, 3)
    assert set(TRAIN_RECIPES) == {"paper", "paper_finetune", "small"}
    tuned = train_recipe("paper_finetune")  # arXiv 1911.03688 §3.2
    assert (tuned.steps, tuned.batch_size) == (60_000, 256)
    assert (tuned.learning_rate, tuned.final_learning_rate) == (0.1, 0.0001)
    assert tuned.embedding_dropout == tuned.attention_dropout == 0.2
    assert (tuned.optimizer, tuned.label_smoothing, tuned.l2) == ("adadelta", 0.2, 1e-5)
    assert tuned.scale_anneal_steps == 0
    with pytest.raises(ValueError, match="'large' is not a preset"):
        train_recipe("large")


@pytest.mark.parametrize(("recipe", "ratio"), [("paper", 1e-3), ("small", 1e-6 / 3e-4)])
def test_a_learning_rate_of_ones_own_falls_as_the_recipes_does(recipe, ratio):
    """The final rate is scaled too; it used to rise to ADADELTA's 1e-3 with `--optimizer adam`."""
    config = train_recipe(recipe, learning_rate=2e-4)
    assert config.final_learning_rate == pytest.approx(2e-4 * ratio)
    config = train_recipe(recipe, learning_rate=2e-4, final_learning_rate=1e-4)
    assert config.final_learning_rate == 1e-4
    with pytest.raises(ValueError, match="must not exceed learning_rate"):
        train_recipe(recipe, learning_rate=2e-4, final_learning_rate=3e-4)


@pytest.mark.slow
def test_one_command_trains_on_a_csv(tmp_path, capsys):
    path, run = _faq(tmp_path / "faq.csv", 120), tmp_path / "run"
    options = ["--data", path, "--model", "tiny", "--output", run, "--steps", "4"]
    options += ["--eval_every", "2", "--checkpoint_every", "2", "--precision", "float32"]
    call_command("train", *options)
    assert load_config(run).embedding_dim == 64
    facts = json.loads((run / "train_config.json").read_text())
    assert facts["train"]["optimizer"] == "adam"
    assert facts["train"]["batch_size"] < 128
    assert facts["train"]["eval_splits"] == []
    rows = rows_of(run)
    assert [row["step"] for row in rows] == [0, 2, 4]
    assert (run / "curve.png").read_bytes().startswith(b"\x89PNG")
    call_command("train", *options)
    assert "nothing to do" in capsys.readouterr().out
