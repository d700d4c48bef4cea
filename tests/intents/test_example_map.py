"""The map of labelled examples, and where the names of intents go on it."""

import io

import matplotlib
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from support.intent_examples import LABELS, TEXTS, WordEncoder

from convert_tf import figures
from convert_tf.intents import example_map
from convert_tf.intents.encodings import IntentEncodings
from convert_tf.intents.example_map import intent_map, map_places, name_places


def test_the_map_shows_suspects():
    encodings = IntentEncodings(WordEncoder())
    places = map_places(encodings(TEXTS))
    assert places.shape == (len(TEXTS), 2) and np.isfinite(places).all()
    plain = intent_map(places, LABELS, [])
    assert plain.startswith(b"\x89PNG")
    assert intent_map(places, LABELS, [3]) != plain


def _boxes(places, labels, suspects=(), num_suspects=None):
    """What is written on a map as it is saved, and the boxes of the names."""
    with matplotlib.rc_context(figures._STYLE):
        figure = intent_map.__wrapped__(places, labels, suspects, num_suspects)
        FigureCanvasAgg(figure)
        figure.savefig(io.BytesIO(), dpi=200)
        texts = [each for each in figure.axes[0].texts if each.get_bbox_patch()]
        boxes = [each.get_bbox_patch().get_window_extent() for each in texts]
        legend = figure.axes[0].get_legend()
        said = [each.get_text() for each in figure.axes[0].texts[len(texts) :]]
        if legend:
            boxes.append(legend.get_window_extent())
            said += [each.get_text() for each in legend.get_texts()]
    return said, [each.get_text() for each in texts], boxes


def _overlapping(boxes):
    return [
        (first, second)
        for second, box in enumerate(boxes)
        for first, other in enumerate(boxes[:second])
        if min(box.x1, other.x1) > max(box.x0, other.x0)
        and min(box.y1, other.y1) > max(box.y0, other.y0)
    ]


def test_no_name_covers_another():
    places = np.random.default_rng(0).normal(size=(120, 2))
    labels = [f"intent_with_a_name_{i % 24}" for i in range(120)]
    said, names, boxes = _boxes(places, labels, suspects=[3, 5])
    assert sorted(names) == sorted({*labels})
    assert _overlapping(boxes) == []
    assert said == ["nearer to another intent (2)"]


def test_names_without_room_are_counted(monkeypatch):
    """Those of the smallest intents."""
    places = np.random.default_rng(0).normal(size=(200, 2)) * 0.01
    labels = [f"intent_{i % 100}" for i in range(150)] + ["intent_7"] * 50
    said, names, boxes = _boxes(np.vstack([places, [[-9, -9], [9, 9]]]), [*labels, "far", "far"])
    assert "intent_7" in names and len(names) < 70
    assert said == [f"{101 - len(names)} of 101 intents have no room for their names"]
    assert _overlapping(boxes) == []


def test_the_map_says_how_many_suspects_are_not_ringed():
    said, _, _ = _boxes(np.arange(8.0).reshape(4, 2), ["a", "a", "b", "b"], [1], 1_205)
    assert said == ["nearer to another intent (1 of 1,205)"]


def test_names_go_to_the_nearest_free_place():
    centres = np.array([[100.0, 100], [100, 104], [300, 5], [300, 100]])
    sizes = np.tile([40.0, 10], (4, 1))
    found = name_places(centres, sizes, taken=[[0, 200, 400, 210]], room=(400, 210))
    assert found[0].tolist() == [100, 100]  # the first stays where it is
    assert found[1].tolist() == [100, 112]
    assert found[2].tolist() == [300, 7]  # inside of the picture
    assert found[3].tolist() == [300, 100]


@pytest.mark.parametrize("far", [0, 20])
def test_no_name_goes_far(monkeypatch, far):
    monkeypatch.setattr(example_map, "_FARTHEST_NAME", far)
    centres, sizes = np.full((30, 2), 100.0), np.tile([40.0, 10], (30, 1))
    found = name_places(centres, sizes, taken=[], room=(200, 200))
    assert np.isfinite(found[0]).all() and np.isnan(found[-1]).all()
    assert np.nanmax(abs(found - centres)) <= far
