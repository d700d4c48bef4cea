"""`convert-tf prepare`: its two engines, their inputs, and the rules set by flags."""

import errno
import sys
import types

import pytest
from support.commands import call_command

from convert_tf.corpora.comments import PRESETS


@pytest.fixture
def engines(monkeypatch, tmp_path):
    """Stub engines that record their arguments by engine name."""
    called = {}

    def engine(name):
        def prepare(inputs, output, **options):
            called[name] = {"inputs": inputs, "output": output, **options}
            return {}

        return types.SimpleNamespace(prepare=prepare, prepare_with_spark=prepare)

    monkeypatch.setitem(sys.modules, "convert_tf.corpora.local", engine("duckdb"))
    monkeypatch.setitem(sys.modules, "convert_tf.corpora.spark.driver", engine("spark"))
    report = types.SimpleNamespace(table=lambda _: "")
    monkeypatch.setitem(sys.modules, "convert_tf.corpora.data_folder", report)
    (tmp_path / "RC").touch()
    return called


def test_flags_reach_the_engine_of_one_machine(engines, tmp_path):
    call_command(
        "prepare", f"--input={tmp_path}/R*", "--output=data", "--preset=clean", "--max_length=50",
        "--max_response_length=40", "--nodrop_bots", "--subreddits=a,b", "--memory_limit=1GB",
        "--num_shards_dev=3", f"--pairs={tmp_path}/RC",
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


def test_only_corpora_that_are_read_limit_the_rules(engines, tmp_path):
    arguments = ("prepare", f"--pairs={tmp_path}/RC", "--output=data", "--min_response_length=200")
    call_command(*arguments)
    options = engines["duckdb"]["options"]
    assert options.corpus_rules.keys() == {"pairs"}
    assert options.corpus_rules["pairs"].min_response_length == 200
    for other in ("input", "submissions", "dialogues"):
        with pytest.raises(SystemExit, match=r"response_length"):
            call_command(*arguments, f"--{other}={tmp_path}/RC")


def test_flags_reach_the_engine_of_a_cluster(engines, tmp_path):
    (tmp_path / "flags").write_text("--engine=spark\n--min_length=4\n")
    call_command(
        "prepare", f"--flagfile={tmp_path}/flags", f"--input={tmp_path}/R*", "--output=data",
        f"--pairs={tmp_path}/RC", "--master=yarn", "--tokenize", "--vocab=v", "--overwrite",
    )  # fmt: skip
    called = engines["spark"]
    assert called["inputs"] == [f"{tmp_path}/RC"]
    assert called["corpora"] == {"pairs": [f"{tmp_path}/RC"]}
    assert called["options"].rules.min_response_length == 4
    assert (called["master"], called["vocabulary"]) == ("yarn", "v")
    assert called["tokenize"] and called["overwrite"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--engine=spark", "--memory_limit=1GB", "--temp_dir=x"],
         "--memory_limit, --temp_dir have no effect with --engine=spark"),
        (["--master=yarn"], "--master has no effect without --engine=spark"),
        ([], "There is nothing to read."),
        (["--dev_fraction=2", "--input={tmp}/RC"], "dev_fraction must be at least 0"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("engines")
def test_what_an_engine_does_not_read_is_refused(arguments, message, tmp_path):
    arguments = [argument.format(tmp=tmp_path) for argument in arguments]
    with pytest.raises(SystemExit) as caught:
        call_command("prepare", "--output=data", *arguments)
    assert message in caught.value.code
    assert "\n" not in caught.value.code


def test_a_full_disk_has_a_remedy(engines, monkeypatch, tmp_path):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device", "shard")

    monkeypatch.setattr(sys.modules["convert_tf.corpora.local"], "prepare", full)
    with pytest.raises(SystemExit, match=r"disk is full \(shard\); data was not changed.*--temp"):
        call_command("prepare", f"--input={tmp_path}/RC", "--output=data")
