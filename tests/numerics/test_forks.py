import os

import pytest

from convert_tf.numerics import forks


def test_a_process_that_opened_a_model_goes_on_and_its_forks_do_not(monkeypatch):
    monkeypatch.setattr(forks, "_opened_in", None)
    for _ in range(2):
        forks.check_not_forked("module/")
    opened_in = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: opened_in + 1)
    with pytest.raises(forks.ForkedError, match=f"'module/' .* after process {opened_in} had"):
        forks.check_not_forked("module/")
