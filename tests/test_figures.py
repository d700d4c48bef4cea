"""The appearance of figures, and the output if matplotlib is missing."""

import io
import sys

import pytest

from convert_tf import figures
from convert_tf.training.summaries import curves

ROWS = [
    {"pairs": pairs, "ranking_loss": 3.0 - pairs / 100, "dev": {"R100@1": 0.1 + pairs / 1000}}
    for pairs in (50, 100)
]


def draw():
    return curves(ROWS, {"recall": [("dev", "R100@1")], "loss": [("", "ranking_loss")]})


def test_a_picture_has_the_style():
    seen = {}

    @figures.picture
    def drawing():
        import matplotlib
        from matplotlib.figure import Figure

        seen["right"] = matplotlib.rcParams["axes.spines.right"]
        figure = Figure(figsize=(1, 1))
        (line,) = figure.add_subplot().plot([1, 2])
        seen["colour"] = line.get_color()
        return figure

    assert drawing().startswith(b"\x89PNG")
    assert seen == {"right": False, "colour": figures.BLUE}


def test_a_picture_is_the_same_each_time():
    assert draw() == draw()


def test_without_matplotlib_a_note_is_printed_once(tmp_path, monkeypatch, capsys):
    figures._say_once.cache_clear()
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for _ in range(2):
        assert not figures.write_picture(tmp_path / "curve.png", draw)
    assert not (tmp_path / "curve.png").exists()
    said = capsys.readouterr().err
    assert said.count("note: no curve.png: Drawing a picture needs the extra [plots]") == 1
    monkeypatch.undo()
    assert figures.write_picture(tmp_path / "curve.png", draw)
    assert (tmp_path / "curve.png").read_bytes() == draw()


@pytest.mark.parametrize("error", [ValueError, ImportError])
def test_other_errors_of_drawing_are_errors(tmp_path, error):
    def fails():
        raise error("x")

    with pytest.raises(error):
        figures.write_picture(tmp_path / "x.png", fails)


def test_pictures_can_be_printed():
    """Figures have 200 dots per inch and no text smaller than 7 points."""
    import matplotlib
    import PIL.Image
    from matplotlib.text import Text

    from convert_tf.intents.report import confusion_chart

    with PIL.Image.open(io.BytesIO(draw())) as read:
        assert read.info["dpi"] == pytest.approx((200, 200), abs=0.1)
    report = {"labels": ["a", "b", "oos"], "matrix": [[1, 1, 0], [0, 2, 0], [0, 0, 1]]}
    with matplotlib.rc_context(figures._STYLE):
        figure = confusion_chart.__wrapped__(report)
    texts = [each for each in figure.findobj(Text) if each.get_text()]
    assert len(texts) >= 3
    assert min(each.get_fontsize() for each in texts) >= 7


def test_curves_are_those_of_the_rows():
    rows = [
        {"pairs": 50, "dev": {"R100@1": 0.1}, "ranking_loss": None},
        {"pairs": 90, "ranking_loss": 2.0},
    ]
    panels = {"recall": [("dev", "R100@1")], "loss": [("", "ranking_loss")]}
    recall, loss = curves.__wrapped__(rows, panels).axes
    (drawn,) = recall.lines
    assert drawn.get_xydata().tolist() == [[50, 10]]  # in percent
    assert drawn.get_label() == "dev R100@1"
    assert loss.lines[0].get_xydata().tolist() == [[90, 2]]


def test_names_with_dollar_signs_are_drawn():
    @figures.picture
    def drawing(name):
        from matplotlib.figure import Figure

        figure = Figure(figsize=(1, 1))
        figure.add_subplot().barh([name], [1])
        return figure

    name = "cost_$5_and_$6"
    assert drawing(figures.literal(name)).startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="ParseSyntaxException"):
        drawing(name)
