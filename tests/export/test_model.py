"""`export_model` takes what the output's name asks for."""

import json
from pathlib import Path

import pytest

import convert_tf.export.hub.writing
import convert_tf.export.onnx.writing
from convert_tf import export_model


@pytest.fixture
def calls(monkeypatch):
    found = []
    for module, name in (
        (convert_tf.export.hub.writing, "export_module"),
        (convert_tf.export.onnx.writing, "export_onnx"),
    ):

        def export(checkpoint, output, _name=name, **options):
            found.append((_name, checkpoint, output, options))
            return Path(output)

        monkeypatch.setattr(module, name, export)
    return found


def test_the_name_of_the_output_chooses_the_form(calls):
    assert export_model("runs/x", "x.onnx") == Path("x.onnx")
    with pytest.raises(ValueError, match=r"'x\.onnx/' names a folder"):
        export_model("runs/x", "x.onnx/")
    export_model("runs/x", Path("modules/x.onnx/1"), network_bits=8, notes="n", overwrite=True)
    options = {"max_tokens": None, "notes": "", "overwrite": False}
    assert calls == [
        ("export_onnx", "runs/x", "x.onnx", options),  # its own number of bits
        (
            "export_module",
            "runs/x",
            Path("modules/x.onnx/1"),
            {"network_bits": 8, "max_tokens": None, "notes": "n", "overwrite": True},
        ),
    ]


@pytest.mark.parametrize(("share", "is_said"), [(0.98, True), (0.02, False), (None, False)])
def test_texts_of_unknown_tokens_are_said(calls, tmp_path, recwarn, share, is_said):
    facts = {} if share is None else {"unknown_tokens": share}
    (tmp_path / "training.json").write_text(json.dumps(facts))
    export_model(tmp_path, "x.onnx")
    said = [str(each.message) for each in recwarn]
    assert bool(said) is is_said
    assert not said or said[0].startswith("98% of the tokens of the texts that it was trained on")
