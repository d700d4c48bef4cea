"""The number of cores that a process may use."""

import os

import pytest

from convert_tf.numerics import processor


def write_cgroup(folder, files):
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)


@pytest.mark.parametrize(
    ("listed", "files", "expected"),
    [
        ("0::/\n", {"cpu.max": "200000 100000\n"}, 2),
        ("0::/\n", {"cpu.max": "max 100000\n"}, float("inf")),
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000", "a/cpu.max": "150000 100000"}, 1.5),
        ("0::/gone\n", {"cpu.max": "50000 100000"}, 0.5),
        ("0::/../../pod\n", {"cpu.max": "300000 100000"}, 3),
        ("2:cpu,cpuacct:/x\n", {"cpu/x/cpu.cfs_quota_us": "250000\n",
                                "cpu/x/cpu.cfs_period_us": "100000\n"}, 2.5),
        ("2:cpu,cpuacct:/\n", {"cpu/cpu.cfs_quota_us": "-1\n",
                               "cpu/cpu.cfs_period_us": "100000\n"}, float("inf")),
        ("3:cpuset:/x\n", {"cpu/x/cpu.cfs_quota_us": "1", "cpu/x/cpu.cfs_period_us": "1"},
         float("inf")),
        ("0::/\n", {"cpu.max": "damaged"}, float("inf")),
    ],
)  # fmt: skip
def test_the_quota_of_the_cgroup(tmp_path, listed, files, expected):
    (tmp_path / "listed").write_text(listed)
    write_cgroup(tmp_path / "cgroup", files)
    quota = processor.cgroup_quota(str(tmp_path / "listed"), str(tmp_path / "cgroup"))
    assert quota == expected


def test_a_system_without_cgroups_has_no_quota(tmp_path):
    assert processor.cgroup_quota(str(tmp_path / "none"), str(tmp_path)) == float("inf")


@pytest.mark.parametrize(("quota", "cores"), [(0.5, 1), (2.9, 2), (float("inf"), 64)])
def test_the_quota_is_rounded_down_to_cores(monkeypatch, quota, cores):
    monkeypatch.setattr(processor, "_threads", [])
    monkeypatch.setattr(processor, "visible_cores", lambda: 64)
    monkeypatch.setattr(processor, "cgroup_quota", lambda: quota)
    assert processor.allowed_cores() == cores


def test_a_number_of_threads_that_was_set_is_used(monkeypatch):
    monkeypatch.setattr(processor, "_threads", [])
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "")
    processor.use_threads(5)
    processor.use_threads(3)
    assert processor.allowed_cores() == 3
    assert os.environ["TF_NUM_INTRAOP_THREADS"] == "3"


def test_the_cores_of_a_process_are_those_that_it_may_run_on(monkeypatch):
    assert processor.visible_cores() == len(os.sched_getaffinity(0))
    monkeypatch.delattr(os, "sched_getaffinity")
    for number, cores in ((6, 6), (None, 1)):
        monkeypatch.setattr(os, "cpu_count", lambda number=number: number)
        assert processor.visible_cores() == cores
