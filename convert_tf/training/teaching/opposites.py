"""Teach the similarity vectors of a trained encoder to tell opposites apart.

Only the similarity map, from reduced encodings r to similarity vectors, is trained. The network
does not change, nor do the context and response encodings. The texts are encoded only once, before
training, so a step takes only a few matrix products.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import ops

from convert_tf.checkpoints.facts import training_facts
from convert_tf.checkpoints.folder import load_checkpoint, load_similarity_map, save_checkpoint
from convert_tf.config.train import MapTraining
from convert_tf.data import packing
from convert_tf.data.teacher_vectors import TeacherVectors
from convert_tf.data.token_arrays import TRIPLET, TRIPLETS, UTTERANCES, ArrayExamples, ArrayFolder
from convert_tf.data.utterances import UtteranceDraws
from convert_tf.layers.side_network import l2_normalize
from convert_tf.models.distillation import sentence_encodings
from convert_tf.models.encoder import DualEncoder
from convert_tf.models.losses import (
    intent_losses,
    opposite_losses,
    paraphrase_candidates,
    taught_ranking_losses,
)
from convert_tf.numerics.vectors import unit_rows
from convert_tf.storage.progress import Progress
from convert_tf.training.teaching.similarity import (
    HELD_OUT_EVERY,
    encoded_texts,
    held_out_texts,
    output_folder,
    training_texts,
)

_TRIPLETS, _TEXTS, _HELD, _TAUGHT = 128, 128, 256, 192  # number of examples of each kind per step
_WEIGHTS = ("opposites", "intent_contrast", "holding")
_SCALE = 20.0  # factor for cosines in a softmax


def teach_opposites(
    checkpoint: str | os.PathLike[str],
    token_ids: str,
    triplets: str,
    output: str | os.PathLike[str] | None = None,
    options: MapTraining | None = None,
    *,
    teacher: str | os.PathLike[str] | None = None,
) -> dict[str, Any]:
    """Train the similarity map of an encoder on triplets, and write the encoder with the new map.

    One in twenty anchors is held out for evaluation. Triplets that share a text with a held-out
    triplet are not used for training.

    Args:
      checkpoint: run or module of a dual encoder with similarity vectors. For a module, the new
        model directory gets the module's rounded weights.
      token_ids: folder of single texts, tokenized with the encoder's vocabulary. The labels of the
        texts are used as intents.
      triplets: folder of triplets, tokenized with the same vocabulary.
      output: folder for the encoder with the new map. If None, the map in `checkpoint` is replaced.
      options: loss weights and number of steps, or None for the defaults.
      teacher: folder of teacher vectors for the single texts. If it is given, the map also learns
        which texts the teacher considers similar.

    Returns:
      A dict with the options and these entries:
      - `triplets` and `texts`: numbers of triplets and texts used for training.
      - `before` and `after`: share of held-out triplets in which the anchor is closer to the
        paraphrase than to the opposite, before and after training. Each is a dict with the share
        for sentence encodings (`sentence`) and for similarity vectors (`similarity`).
      - `cosine`: mean cosine between a text's similarity vectors before and after training.

    Raises:
      ValueError: if the encoder has no similarity vectors, a folder contains another kind of texts
        or was made with another vocabulary, or `checkpoint` is a module and `output` is None.
      OSError: if a file cannot be read or written.
    """
    options = options or MapTraining()
    folder = output_folder(checkpoint, output)
    kernel = load_similarity_map(checkpoint)
    if kernel is None:
        raise ValueError(
            f"{os.fspath(checkpoint)!r} has no similarity vectors. Add them first with "
            "`convert-tf similarity --teacher`."
        )
    encoder, vocabulary = load_checkpoint(checkpoint)
    texts = _opened(token_ids, UTTERANCES, encoder, vocabulary)
    vectors = None
    if teacher is not None:
        vectors = TeacherVectors(teacher, texts, vocab_size=ArrayFolder(token_ids).vocab_size)
    contrasts = _opened(triplets, TRIPLETS, encoder, vocabulary)
    with Progress("examples", total=texts.num_examples + contrasts.num_examples) as progress:
        reduced, of_triplets = (
            encoded_texts(encoder, examples, examples.names, dtype=np.float16, count=progress.add)
            for examples in (texts, contrasts)
        )
    reduced = reduced[:, 0]
    is_held_out, is_used = _held_out(contrasts)
    batches = map_batches(
        texts, contrasts, reduced, of_triplets, np.flatnonzero(is_used), kernel,
        seed=options.seed, steps=options.map_steps, teacher=vectors,
    )  # fmt: skip
    taught = trained_map(kernel, batches, options)
    before, after = (_vectors(reduced, one)["similarity"] for one in (kernel, taught))
    facts = {
        "triplets": int(is_used.sum()),
        "texts": texts.num_examples,
        "before": _shares(of_triplets[is_held_out], kernel),
        "after": _shares(of_triplets[is_held_out], taught),
        "cosine": float(np.sum(before * after, axis=1).mean()),
        **{name: getattr(options, name) for name in _WEIGHTS},
        "steps": options.map_steps,
    }
    if vectors is not None:
        facts |= {"teacher": Path(vectors.teacher).name, "teaching": options.teaching}
    training = training_facts(checkpoint)
    if "opposites" in training:
        facts["earlier"] = training["opposites"]
    save_checkpoint(
        folder,
        encoder,
        vocabulary=vocabulary,
        training={**training, "opposites": facts},
        similarity_map=taught,
    )
    return facts


def opposites_report(facts: dict[str, Any]) -> str:
    """Format the result of `teach_opposites` for a terminal."""
    shares = ", ".join(
        f"{kind} {100 * facts['before'][kind]:.1f} → {100 * facts['after'][kind]:.1f}"
        for kind in facts["after"]
    )
    return (
        f"trained on {facts['triplets']:,} triplets and {facts['texts']:,} texts\n"
        f"held-out triplets whose paraphrase is nearer than the opposite, in %: {shares}\n"
        f"mean cosine of similarity vectors before and after: {facts['cosine']:.3f}"
    )


def map_batches(
    texts: ArrayExamples,
    triplets: ArrayExamples,
    reduced: np.ndarray,
    of_triplets: np.ndarray,
    used: np.ndarray,
    kernel: np.ndarray,
    *,
    seed: int,
    steps: int,
    teacher: TeacherVectors | None = None,
) -> Iterator[tuple[dict[str, np.ndarray]]]:
    """Yield the inputs for each step of training a similarity map, in the form that Keras reads.

    Args:
      texts: single texts.
      triplets: triplets.
      reduced: reduced encodings of the single texts, `[texts, reduced_dim]`.
      of_triplets: reduced encodings of the texts in the triplets, `[triplets, 3, reduced_dim]`.
      used: indices of the triplets to draw from, int64.
      kernel: matrix of the map before training, float32 `[reduced_dim, dim]`.
      seed: seed for the random draws.
      steps: number of training steps.
      teacher: teacher vectors for the single texts, or None.

    Yields:
      A tuple with one dict, which has these entries:
      - For each name in `TRIPLET`, the reduced encodings of these texts, float32 `[triplets,
        reduced_dim]`, and `{name}_groups`, int32 `[triplets]`, in which equal texts have equal
        numbers.
      - `text`: reduced encodings of single texts, float32 `[texts, reduced_dim]`, with their
        `intent_groups` and `intent_names` (see `UtteranceDraws`).
      - `held`: reduced encodings of texts whose vectors should not change, float32 `[held,
        reduced_dim]`, with `held_similarity` and `held_sentence`, their vectors before training.
      - With a teacher, `taught`, reduced encodings of texts, float32 `[taught, reduced_dim]`, and
        `teacher`, the teacher's vectors for these texts, float32 `[taught, teacher_dim]`.
    """
    draws = UtteranceDraws(texts, per_pair=2, seed=seed)
    draws.draw_in_pairs()
    for step in range(steps):
        rng = np.random.default_rng([seed, step])
        drawn = rng.choice(used, min(_TRIPLETS, len(used)), replace=False)
        groups = packing.text_groups(triplets.token_ids(drawn)).reshape(len(TRIPLET), -1)
        batch: dict[str, np.ndarray] = {}
        for i, name in enumerate(TRIPLET):
            batch[name] = of_triplets[drawn, i].astype(np.float32)
            batch[f"{name}_groups"] = groups[i].astype(np.int32)
        places = np.arange(_TEXTS // 2) + step * (_TEXTS // 2)
        numbers = draws.draw(places).ravel()
        batch |= {"text": reduced[numbers].astype(np.float32), **draws.columns(numbers)}
        half = _HELD // 2
        others = rng.integers(len(reduced), size=half)
        similar = rng.choice(used, half), rng.integers(2, size=half)
        held = np.concatenate([reduced[others], of_triplets[similar]]).astype(np.float32)
        batch["held"] = held
        batch |= {f"held_{kind}": before for kind, before in _vectors(held, kernel).items()}
        if teacher is not None:
            number = min(_TAUGHT, len(teacher.numbers))
            drawn = np.sort(rng.choice(teacher.numbers, number, replace=False))
            (vectors,) = teacher.columns(drawn).values()
            batch["taught"] = reduced[drawn].astype(np.float32)
            batch["teacher"] = vectors.astype(np.float32)
        yield (batch,)


class MapModel(keras.Model):
    """The similarity map as a Keras model with its loss.

    The loss of a step is opposites · L_opposites + intent_contrast · L_intents + holding · L_held +
    teaching · L_taught. Each term is summed over two kinds of vectors, sentence encodings and
    similarity vectors. L_opposites and L_intents are the means of `opposite_losses` and
    `intent_losses`. L_held is the mean of 1 − cosine between a text's vectors before and during
    training. L_taught is the mean of `taught_ranking_losses`, which compares each text's cosines to
    the other texts with the teacher's cosines.

    Args:
      kernel: initial matrix of the map, float32 `[reduced_dim, dim]`.
      options: weights of the terms.
    """

    def __init__(self, kernel: np.ndarray, options: MapTraining) -> None:
        super().__init__()
        self._options = options
        self.kernel = self.add_weight(shape=kernel.shape, initializer="zeros", name="kernel")
        self.kernel.assign(kernel)
        self.built = True

    def call(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Return the vectors of the texts in `held`: a dict with one entry per kind of vector."""
        return self._vectors(inputs["held"])

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None,
        sample_weight: Any = None, training: bool = True,
    ) -> Any:  # fmt: skip
        """Return the loss for the inputs of a step, which `map_batches` describes."""
        options, total = self._options, 0.0
        triplets = [self._vectors(x[name]) for name in TRIPLET]
        groups = [x[f"{name}_groups"] for name in TRIPLET]
        texts = self._vectors(x["text"])
        for kind, held in y_pred.items():
            opposites = opposite_losses(
                *(vectors[kind] for vectors in triplets),
                scale=_SCALE,
                is_candidate=paraphrase_candidates(*groups),
            )
            intents, has_loss = intent_losses(
                texts[kind], x["intent_groups"], x["intent_names"], scale=_SCALE
            )
            number = ops.maximum(ops.sum(ops.cast(has_loss, "float32")), 1.0)
            moved = 1.0 - ops.sum(held * x[f"held_{kind}"], axis=-1)
            total += options.opposites * ops.mean(opposites)
            total += options.intent_contrast * ops.sum(intents) / number
            total += options.holding * ops.mean(moved)
            if "taught" in x:
                taught = taught_ranking_losses(
                    _cosines(self._vectors(x["taught"])[kind]),
                    _cosines(l2_normalize(x["teacher"])),
                    is_candidate=~ops.eye(ops.shape(x["taught"])[0], dtype="bool"),
                )
                total += options.teaching * ops.mean(taught)
        return total

    def _vectors(self, reduced: Any) -> dict[str, Any]:
        mapped = ops.matmul(reduced, self.kernel)
        added = ops.matmul(mapped, l2_normalize(ops.transpose(self.kernel)))
        return {"similarity": l2_normalize(mapped), "sentence": l2_normalize(reduced + added)}


def _cosines(vectors: Any) -> Any:
    return _SCALE * ops.matmul(vectors, ops.transpose(vectors))


def trained_map(
    kernel: np.ndarray, batches: Iterator[tuple[dict[str, np.ndarray]]], options: MapTraining
) -> np.ndarray:
    """Train a similarity map.

    Args:
      kernel: initial matrix of the map, float32 `[reduced_dim, dim]`.
      batches: inputs of each step, from `map_batches`.
      options: loss weights, learning rate and number of steps.

    Returns:
      The trained matrix, float32 `[reduced_dim, dim]`.
    """
    steps = options.map_steps
    rate = options.map_learning_rate * float(np.sqrt(np.mean(kernel**2)))
    schedule = keras.optimizers.schedules.PolynomialDecay(rate, steps, 0.0)
    model = MapModel(kernel, options)
    model.compile(optimizer=keras.optimizers.Adam(schedule))
    with Progress("steps", total=steps) as progress:
        model.fit(progress.counted(batches), steps_per_epoch=steps, shuffle=False, verbose=0)
    return np.asarray(model.kernel, np.float32)


def _opened(path: str, holds: str, encoder: DualEncoder, vocabulary: Any) -> ArrayExamples:
    examples = training_texts(ArrayFolder(path), holds, encoder, vocabulary)
    if examples.num_examples < HELD_OUT_EVERY:
        raise ValueError(
            f"{path!r} contains only {examples.num_examples} {holds}. Training needs at least "
            f"{HELD_OUT_EVERY}."
        )
    return examples


def _held_out(triplets: ArrayExamples) -> tuple[np.ndarray, np.ndarray]:
    """Choose which triplets to hold out.

    Returns:
      Two arrays, bool `[triplets]`: which triplets are held out, and which share no text with a
      held-out triplet, so that they can be used for training.
    """
    ids = triplets.token_ids(np.arange(triplets.num_examples))
    groups = packing.text_groups(ids).reshape(len(TRIPLET), -1)
    is_held_out = held_out_texts(groups[0])
    is_used = ~np.isin(groups, groups[:, is_held_out]).any(axis=0)
    if not is_used.any():
        raise ValueError(
            "Every triplet shares a text with a held-out one, so none are left to train on. Add "
            "triplets with other texts."
        )
    return is_held_out, np.asarray(is_used)


def _vectors(reduced: np.ndarray, kernel: np.ndarray) -> dict[str, np.ndarray]:
    """Return similarity vectors and sentence encodings, normalised to length 1, as a dict."""
    reduced = reduced.astype(np.float32)
    return {
        "similarity": unit_rows(reduced @ kernel),
        "sentence": unit_rows(sentence_encodings(reduced, kernel)),
    }


def _shares(of_triplets: np.ndarray, kernel: np.ndarray) -> dict[str, float]:
    """Return the share of triplets whose paraphrase is closer than the opposite.

    The result is a dict with the share for each kind of vector.
    """
    sides: Sequence[dict[str, np.ndarray]] = [_vectors(of_triplets[:, i], kernel) for i in range(3)]
    return {
        kind: float(np.mean(np.sum(sides[0][kind] * (sides[1][kind] - sides[2][kind]), axis=1) > 0))
        for kind in sides[0]
    }
