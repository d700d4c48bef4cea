"""Training the similarity map of a finished encoder to separate opposite texts."""

import json

import numpy as np
import pytest
from support.commands import call_command
from support.tiny_checkpoint import write_checkpoint

from convert_tf import SentenceEncoder
from convert_tf.checkpoints.folder import load_similarity_map
from convert_tf.config.train import MapTraining
from convert_tf.data.token_arrays import TRIPLET, ArrayFolder
from convert_tf.numerics.vectors import unit_rows
from convert_tf.training.teaching.opposites import MapModel, _held_out, teach_opposites
from convert_tf.training.teaching.vectors import write_teacher_vectors

pytestmark = pytest.mark.traced

WORDS = [f"{size} {thing}" for size in ("big", "small", "old", "red", "new")
         for thing in ("lamp", "door", "radio", "window")]  # fmt: skip
ROWS = [
    {"anchor": f"{w} on", "positive": f"please start the {w}", "negative": f"{w} off"}
    for w in WORDS
]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Folder with a run that has a similarity map, and token ids of texts and triplets."""
    folder = tmp_path_factory.mktemp("place")
    write_checkpoint(folder / "run", similarity_dim=12)
    write_checkpoint(folder / "plain")
    texts = [
        {"text": row[key], "label": key, "source": "s"}
        for row in ROWS
        for key in ("anchor", "negative")
    ]
    for name, rows in (("triplets", ROWS), ("utterances", texts)):
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
        tokenize(folder, name, name)
    return folder


def tokenize(folder, kind, name):
    """Write the token ids of a file for the run in the folder."""
    config = json.loads((folder / "run" / "config.json").read_text())
    call_command(
        "tokenize", f"--{kind}", str(folder / f"{name}.jsonl"), "--output",
        str(folder / name), "--vocab", str(folder / "run" / "vocab.txt"),
        *(f"--{key}={config[key]}" for key in ("num_oov_buckets", "max_tokens")),
    )  # fmt: skip


def taught(place, *flags):
    return call_command(
        "similarity", "--encoder", str(place / "run"), "--token_ids", str(place / "utterances"),
        *flags,
    )  # fmt: skip


def test_the_loss_against_loops():
    rng = np.random.default_rng(0)
    kernel = rng.standard_normal((6, 4)).astype("float32")
    names = (*TRIPLET, "text", "held", "taught")
    batch = {name: rng.standard_normal((3, 6)).astype("float32") for name in names}
    groups = {
        f"{name}_groups": np.arange(3, dtype="int32") + 3 * i for i, name in enumerate(TRIPLET)
    }
    labels = {key: np.array([0, 0, 1], "int32") for key in ("intent_groups", "intent_names")}
    batch |= groups | labels
    before = {kind: unit_rows(rng.standard_normal((3, n))) for kind, n in
              (("similarity", 4), ("sentence", 6))}  # fmt: skip
    batch |= {f"held_{kind}": vectors.astype("float32") for kind, vectors in before.items()}
    batch["teacher"] = rng.standard_normal((3, 5)).astype("float32")
    seen = unit_rows(batch["teacher"])

    def vector(r, kind):
        mapped = [sum(r[i] * kernel[i, j] for i in range(6)) for j in range(4)]
        if kind == "sentence":
            lengths = [np.sqrt(sum(kernel[i, j] ** 2 for i in range(6))) for j in range(4)]
            mapped = [
                r[i] + sum(mapped[j] * kernel[i, j] / lengths[j] for j in range(4))
                for i in range(6)
            ]
        return np.array(mapped) / np.linalg.norm(mapped)

    expected = 0.0
    for kind in before:
        v = {name: [vector(r, kind) for r in batch[name]] for name in names}
        candidates = v["paraphrase"] + v["opposite"]
        opposites = [
            np.log(sum(np.exp(20 * (a @ c)) for c in candidates)) - 20 * (a @ v["paraphrase"][i])
            for i, a in enumerate(v["anchor"])
        ]
        t = v["text"]
        intents = [  # the third text has no partner
            np.log(np.exp(20 * (t[i] @ t[1 - i])) + np.exp(20 * (t[i] @ t[2]))) - 20 * (t[0] @ t[1])
            for i in (0, 1)
        ]
        moved = [1 - a @ b for a, b in zip(v["held"], before[kind], strict=True)]
        taught = []
        for i, j, k in ((0, 1, 2), (1, 0, 2), (2, 0, 1)):
            wanted, given = (
                [1 / (1 + np.exp(20 * (u[i] @ u[b] - u[i] @ u[a]))) for a, b in ((j, k), (k, j))]
                for u in (seen, v["taught"])
            )
            taught.append(-sum(w * np.log(g) for w, g in zip(wanted, given, strict=True)))
        expected += 2 * np.mean(opposites) + 3 * np.mean(intents) + 5 * np.mean(moved)
        expected += 7 * np.mean(taught)
    options = MapTraining(opposites=2.0, intent_contrast=3.0, holding=5.0, teaching=7.0)
    model = MapModel(kernel, options)
    found = model.compute_loss(batch, y_pred=model(batch))
    np.testing.assert_allclose(float(found), expected, rtol=1e-4)


@pytest.mark.slow
def test_a_map_learns_opposites_and_the_encoder_stays(place, tmp_path, capsys):
    output = tmp_path / "taught"
    taught(place, "--triplets", str(place / "triplets"), "--output", str(output),
                     "--map_steps=100", "--holding=1")  # fmt: skip
    old, new = SentenceEncoder(place / "run"), SentenceEncoder(output)
    shares = []
    for encoder in (old, new):
        a, p, n = (
            unit_rows(encoder.encode([row[key] for row in ROWS]))
            for key in ("anchor", "positive", "negative")
        )
        shares.append(np.mean((a * p).sum(1) > (a * n).sum(1)))
    assert shares[0] < 0.5 < 0.8 < shares[1]
    texts = [row["anchor"] for row in ROWS]
    for kind in ("reduced", "context", "response"):
        np.testing.assert_array_equal(new.encode(texts, kind=kind), old.encode(texts, kind=kind))
    facts = json.loads((output / "training.json").read_text())["opposites"]
    assert 0 < facts["triplets"] < len(ROWS)
    assert facts["steps"] == 100
    assert "held-out triplets" in capsys.readouterr().out
    taught(place, "--triplets", str(place / "triplets"), f"--output={tmp_path}/twice",
                  f"--encoder={output}", "--map_steps=1")  # fmt: skip
    weights = (tmp_path / "twice" / "model.weights.h5").read_bytes()
    with pytest.raises(ValueError, match="twice' already exists"):
        teach_opposites(
            place / "run", str(place / "texts"), str(place / "triplets"), tmp_path / "twice"
        )
    assert (tmp_path / "twice" / "model.weights.h5").read_bytes() == weights
    twice = json.loads((tmp_path / "twice" / "training.json").read_text())["opposites"]
    assert (twice["steps"], twice["earlier"]) == (1, facts)


@pytest.mark.slow
def test_holding_keeps_the_vectors(place, tmp_path):
    cosines = []
    for holding in (0.0, 1000.0):
        options = MapTraining(map_steps=30, holding=holding)
        facts = teach_opposites(
            place / "run", str(place / "utterances"), str(place / "triplets"),
            tmp_path / str(holding), options,
        )  # fmt: skip
        cosines.append(facts["cosine"])
    assert cosines[0] < 0.95 < cosines[1]


@pytest.mark.slow
def test_a_teacher_says_which_texts_are_near_each_other(place, tmp_path):
    """The teacher gives texts about the same object equal vectors, which the encoder does not."""

    def teach(texts):
        found = np.full((len(texts), 4), 0.01, np.float32)
        for i, text in enumerate(texts):
            for j, thing in enumerate(("lamp", "door", "radio", "window")):
                found[i, j] += thing in text
        return found

    utterances = str(place / "utterances")
    write_teacher_vectors(utterances, str(tmp_path / "teacher"), teacher=teach, name="things")
    texts = [row["anchor"] for row in ROWS]
    target = unit_rows(teach(texts))
    agreements = []
    for teacher in (None, str(tmp_path / "teacher")):
        output = tmp_path / f"taught by {teacher is not None}"
        options = MapTraining(map_steps=100, holding=0.0, opposites=0.1, teaching=20.0)
        facts = teach_opposites(
            place / "run", utterances, str(place / "triplets"), output, options, teacher=teacher
        )
        encodings = unit_rows(SentenceEncoder(output).encode(texts))
        cosines = [(vectors @ vectors.T).ravel() for vectors in (encodings, target)]
        agreements.append(np.corrcoef(*cosines)[0, 1])
    assert facts["teacher"] == "things"
    assert agreements[0] < agreements[1] - 0.1


def test_a_seed_gives_the_same_map(place, tmp_path):
    maps = []
    for i, seed in enumerate((0, 0, 1)):
        teach_opposites(
            place / "run", str(place / "utterances"), str(place / "triplets"),
            tmp_path / str(i), MapTraining(map_steps=3, seed=seed),
        )  # fmt: skip
        maps.append(load_similarity_map(tmp_path / str(i)))
    np.testing.assert_array_equal(maps[0], maps[1])
    assert not np.array_equal(maps[0], maps[2])


def test_triplets_that_share_a_text_with_those_held_out_are_not_trained_on(place):
    turned = [{**row, "anchor": row["positive"], "positive": row["anchor"]} for row in ROWS]
    (place / "both.jsonl").write_text("\n".join(map(json.dumps, ROWS + turned)) + "\n")
    tokenize(place, "triplets", "both")
    triplets = ArrayFolder(str(place / "both")).open("train", max_tokens=8, holds="triplets")
    is_held_out, is_used = _held_out(triplets)
    flat, splits = triplets.token_ids(np.arange(triplets.num_examples))
    ids = [row.tobytes() for row in np.split(flat, splits[1:-1])]
    texts = [set(ids[i :: triplets.num_examples]) for i in range(triplets.num_examples)]
    held = set().union(*(row for row, out in zip(texts, is_held_out, strict=True) if out))
    assert held
    assert is_used.tolist() == [not row & held for row in texts]


def test_what_cannot_be_taught_is_refused(place, tmp_path):
    utterances, triplets = str(place / "utterances"), str(place / "triplets")
    with pytest.raises(ValueError, match="--teacher"):
        teach_opposites(place / "plain", utterances, triplets, tmp_path / "x")
    with pytest.raises(ValueError, match="--utterances"):
        teach_opposites(place / "run", triplets, triplets, tmp_path / "x")
    with pytest.raises(SystemExit, match="--triplets"):
        taught(place)
    with pytest.raises(SystemExit, match="--holding"):
        taught(place, "--teacher=x", "--holding=1")
    with pytest.raises(SystemExit, match="--teaching"):
        taught(place, "--triplets", triplets, "--teaching=1")
    assert not (tmp_path / "x").exists()
