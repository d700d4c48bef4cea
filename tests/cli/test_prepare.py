"""`convert-tf prepare`: its two engines, what each reads, and the rules that flags make."""

import errno
import sys
import types

import pytest
from support.commands import call_command

from convert_tf.cli.flags import UsageError
from convert_tf.cli.prepare import check_values
from convert_tf.corpora.comments import PRESETS


@pytest.fixture
def engines(monkeypatch, tmp_path):
    """Engines that keep what they are called with, under their names."""
    called = {}

    def engine(name):
        def prepare(inputs, output, **options):
            called[name] = {"inputs": inputs, "output": output, **options}
            return {}

        return types.SimpleNamespace(prepare=prepare, prepare_with_beam=prepare)

    monkeypatch.setitem(sys.modules, "convert_tf.corpora.local", engine("duckdb"))
    monkeypatch.setitem(sys.modules, "convert_tf.corpora.beam.runner", engine("beam"))
    (tmp_path / "RC").touch()
    return called


def test_flags_reach_the_engine_of_one_machine(engines, tmp_path):
    call_command(
        "prepare", f"--input={tmp_path}/R*", "--output=data", "--preset=clean", "--max_length=50",
        "--max_response_length=40", "--nodrop_bots", "--subreddits=a,b", "--memory_limit=1GB",
        "--num_shards_dev=3",
    )  # fmt: skip
    called = engines["duckdb"]
    assert called["inputs"] == [f"{tmp_path}/RC"]
    options = called["options"]
    assert (options.memory_limit, options.num_shards["dev"]) == ("1GB", 3)
    rules = options.rules
    lengths = (rules.max_context_length, rules.max_response_length, rules.max_extra_length)
    assert lengths == (50, 40, 50)
    assert PRESETS["clean"]["drop_bots"]
    assert not rules.drop_bots
    assert rules.drop_repeats
    assert rules.subreddits == ("a", "b")
    assert options.corpus_rules["pairs"].deduplicate == PRESETS["clean"]["deduplicate"]


def test_patterns_and_options_of_beam_reach_it(engines, capsys):
    call_command(
        "prepare", "--engine=beam", "--runner", "FnApiRunner", "--input", "gs://a/RC_*",
        "--pairs=gs://b/x.csv", "--direct_num_workers=2", "--output=gs://c", "--min_length=4",
    )  # fmt: skip
    called = engines["beam"]
    assert called["beam_arguments"] == ["--runner", "FnApiRunner", "--direct_num_workers=2"]
    assert called["inputs"] == ["gs://a/RC_*"]
    assert called["corpora"]["pairs"] == ["gs://b/x.csv"]
    assert called["options"].rules.min_response_length == 4
    assert "submitted; gs://c will be complete" in capsys.readouterr().out


def test_the_engine_may_come_from_a_file(engines, tmp_path):
    (tmp_path / "flags").write_text("--engine=beam\n--input=RC\n")
    call_command("prepare", f"--flagfile={tmp_path}/flags", "--runner=x", "--output=data")
    assert engines["beam"]["beam_arguments"] == ["--runner=x"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--engine=beam", "--memory_limit=1GB"],
            "--memory_limit has no effect with --engine=beam",
        ),
        (
            ["--engine=beam", "--tokenize", "--temp_dir=x"],
            "--temp_dir, --tokenize have no effect with --engine",
        ),
        (["--engine=beam", "--input=a", "b"], "Unexpected argument 'b': quote patterns"),
        (["--runner=FnApiRunner"], "There is no flag --runner."),
        (["--engine=spark"], "should be one of <duckdb|beam>"),
        (["--engine=beam"], "There must be something to read. Received: no files."),
        ([], "There must be something to read. Received: no files."),
        (["--dev_fraction=2", "--input={tmp}/RC"], "dev_fraction must be from 0 to 0.9"),
    ],
)
@pytest.mark.usefixtures("engines")
def test_what_an_engine_does_not_read_is_refused(arguments, message, tmp_path):
    arguments = [argument.format(tmp=tmp_path) for argument in arguments]
    with pytest.raises(SystemExit) as caught:
        call_command("prepare", "--output=data", *arguments)
    assert message in caught.value.code
    assert "\n" not in caught.value.code


@pytest.mark.parametrize(
    "arguments", [["RC_2"], ["--runner", "FnApiRunner", "RC_2"], ["--runner=FnApiRunner", "RC_2"]]
)
def test_values_without_an_option_are_an_error(arguments):
    with pytest.raises(UsageError, match="Unexpected argument 'RC_2': quote patterns"):
        check_values(arguments)
    check_values(arguments[:-1])


def test_a_full_disk_has_a_remedy(engines, monkeypatch, tmp_path):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device", "shard")

    monkeypatch.setattr(sys.modules["convert_tf.corpora.local"], "prepare", full)
    with pytest.raises(
        SystemExit, match=r"the disk is full \(shard\); data was not changed.*--temp"
    ):
        call_command("prepare", f"--input={tmp_path}/RC", "--output=data")


def test_errors_of_beam_are_one_line(engines, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("a step\nfailed")

    monkeypatch.setattr(sys.modules["convert_tf.corpora.beam.runner"], "prepare_with_beam", fail)
    with pytest.raises(SystemExit, match=r"^convert-tf prepare: a step failed$"):
        call_command("prepare", "--engine=beam", "--input=a", "--output=data")
