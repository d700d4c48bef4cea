"""Fit a similarity map for an encoder that was trained without a teacher.

A run with a teacher saves a similarity map with its weights. For other encoders, this module fits
one by ridge regression from reduced encodings r to a teacher's vectors. It then rotates the vectors
so that the most important dimensions come first.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from convert_tf.checkpoints.facts import training_facts
from convert_tf.checkpoints.folder import load_checkpoint, save_checkpoint
from convert_tf.checkpoints.kinds import kind_of
from convert_tf.checkpoints.vocabulary import check_same_vocabulary
from convert_tf.data import packing
from convert_tf.data.batches import EvaluationBatches
from convert_tf.data.schema import Examples, SelectedExamples
from convert_tf.data.teacher_vectors import TeacherVectors, taught_names
from convert_tf.data.token_arrays import PAIRS, UTTERANCES, ArrayExamples, ArrayFolder
from convert_tf.encoding.signatures import SHORTER_DIMS
from convert_tf.models.distillation import fitted_map, sentence_encodings, similarity_map
from convert_tf.models.encoder import DualEncoder
from convert_tf.numerics.vectors import unit_rows
from convert_tf.storage.progress import Progress
from convert_tf.training.encoder.data import check_same_buckets

HELD_OUT_EVERY = 20
_FEWEST_HELD_OUT = 3  # two texts have only one cosine, and a correlation needs several
_COMPARED_TEXTS = 2_000  # maximum number of held-out texts whose pairs are all compared


def fit_similarity(
    checkpoint: str | os.PathLike[str],
    token_ids: str,
    teacher: str,
    output: str | os.PathLike[str] | None = None,
) -> dict[str, Any]:
    """Fit a map from reduced encodings to a teacher's vectors, and write the encoder with the map.

    One in twenty of the different texts is held out for evaluation. Texts that are equal to a
    held-out text are not used for fitting, and each held-out text is measured once.

    Args:
      checkpoint: run or module of a dual encoder. For a module, the new model directory gets the
        module's rounded weights.
      token_ids: folder of pairs or single texts, tokenized with the encoder's vocabulary.
      teacher: folder of teacher vectors for these texts.
      output: folder for the encoder with its map. If None, the map is added to `checkpoint`.

    Returns:
      A dict with these entries:
      - `teacher`: name of the teacher.
      - `dim`: dimension of the vectors.
      - `texts`: number of texts that the map was fitted to.
      - `held_out`: measurements on held-out texts, as a dict. `texts` is the number of these texts,
        and `cosine` is the mean cosine between their similarity vectors and the teacher's vectors.
        `compared` is the number of randomly chosen texts, at most 2,000, for which all pairs are
        compared. The other entries are Spearman correlations of the teacher's cosines with the
        cosines of similarity vectors of each length (`spearman`), of reduced encodings
        (`spearman_of_r`) and of sentence encodings (`spearman_of_sentences`).

    Raises:
      ValueError: if the vocabularies differ, fewer than 41 different texts have a vector, or
        `checkpoint` is a module and `output` is None.
      OSError: if a file cannot be read or written.
    """
    output = output_folder(checkpoint, output)
    encoder, vocabulary = load_checkpoint(checkpoint)
    folder = ArrayFolder(token_ids)
    holds = UTTERANCES if folder.holds == UTTERANCES else PAIRS
    examples = training_texts(folder, holds, encoder, vocabulary)
    vectors = TeacherVectors(teacher, examples, vocab_size=folder.vocab_size)
    chosen = SelectedExamples(examples, vectors.numbers)
    is_fitted, held_out = _fitted_and_held_out(examples, vectors.numbers)
    if len(held_out) < _FEWEST_HELD_OUT:
        raise ValueError(
            f"{teacher!r} has vectors for {chosen.num_examples} examples, and their different "
            "texts are too few to fit a map. Write more vectors with `convert-tf teach`."
        )
    with Progress("examples", total=chosen.num_examples) as progress:
        reduced, taught = taught_texts(encoder, chosen, vectors, count=progress.add)
    kernel = fitted_map(reduced[is_fitted], taught[is_fitted])
    turned = similarity_map(reduced[is_fitted], kernel)
    facts = {
        "teacher": Path(vectors.teacher).name,  # model cards do not show the path of the teacher
        "dim": turned.shape[1],
        "texts": int(is_fitted.sum()),
        "held_out": _measured(reduced[held_out], taught[held_out], kernel, turned),
    }
    training = training_facts(checkpoint)
    training.pop("opposites", None)  # this entry described the replaced map
    save_checkpoint(
        output,
        encoder,
        vocabulary=vocabulary,
        training={**training, "similarity": facts},
        similarity_map=turned,
    )
    return facts


def held_out_texts(groups: np.ndarray) -> np.ndarray:
    """Choose which texts to hold out, one in twenty of the different texts.

    Args:
      groups: checksums of the texts, int32 `[texts]`, from `packing.text_groups`.

    Returns:
      bool `[texts]`. Equal texts have equal values.
    """
    # Groups are checksums of texts, so taking every n-th group amounts to a random choice.
    return np.isin(groups, np.unique(groups)[::HELD_OUT_EVERY])


def _fitted_and_held_out(
    examples: ArrayExamples, numbers: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Choose which texts to fit a map to, and which to hold out.

    Texts are often repeated: a turn may be a response in one example and the context in the next.

    Args:
      examples: pairs or single texts.
      numbers: indices of the examples to choose from, int64 `[n]`.

    Returns:
      A tuple of the texts to fit to, bool `[n × names]`, and the indices of the texts that are held
      out, each text once. The texts are in the order of `taught_texts`.
    """
    names = taught_names(examples)
    of_names = [packing.text_groups(examples.texts(name, numbers)) for name in names]
    groups = np.stack(of_names, axis=1).ravel()
    is_held_out = held_out_texts(groups)
    places = np.flatnonzero(is_held_out)
    _, first = np.unique(groups[places], return_index=True)
    return ~is_held_out, places[first]


def output_folder(
    checkpoint: str | os.PathLike[str], output: str | os.PathLike[str] | None
) -> str | os.PathLike[str]:
    """Return the folder to write an encoder with a new map to.

    This is `output`, or `checkpoint` if `output` is None.

    Raises:
      ValueError: if the map would be written to a module, which must not be changed, or `output`
        is another folder that is not empty.
    """
    if output is not None and os.path.realpath(output) != os.path.realpath(checkpoint):
        is_empty = os.path.isdir(output) and not os.listdir(output)
        if os.path.exists(output) and not is_empty:
            raise ValueError(
                f"{os.fspath(output)!r} already exists. Pass another --output, or remove it."
            )
        return output
    if kind_of(checkpoint).is_module:
        raise ValueError(
            f"{os.fspath(checkpoint)!r} is a module, and modules are never changed. Pass --output "
            "to write the model with its map to another folder, and export that folder."
        )
    return checkpoint


def training_texts(
    folder: ArrayFolder, holds: str, encoder: DualEncoder, vocabulary: str | os.PathLike[str]
) -> ArrayExamples:
    """Open the train split of a folder of token ids for an encoder.

    Args:
      folder: folder of token ids.
      holds: the required kind of examples: `pairs`, `utterances` or `triplets`.
      encoder, vocabulary: the encoder and its vocabulary file, from `load_checkpoint`.

    Raises:
      ValueError: if the folder contains another kind of examples, or was made with another
        vocabulary or another number of hash buckets.
    """
    check_same_vocabulary(
        folder.vocabulary,
        vocabulary,
        rule="Token ids must be made with the vocabulary of the encoder",
        remedy=f"Write the token ids again with `convert-tf tokenize --vocab {vocabulary}`.",
    )
    check_same_buckets(folder, encoder.config)
    max_tokens = min(encoder.config.max_tokens, folder.max_tokens)
    return folder.open("train", max_tokens=max_tokens, holds=holds)


def encoded_texts(
    encoder: DualEncoder,
    examples: Examples,
    names: Sequence[str],
    *,
    max_examples: int | None = None,
    dtype: Any = np.float32,
    count: Callable[[int], None] = lambda examples: None,
) -> np.ndarray:
    """Return the reduced encodings of the texts in examples.

    Args:
      encoder: dual encoder that encodes the texts.
      examples: pairs, single texts or triplets.
      names: names of the texts to encode in each example.
      max_examples: maximum number of examples to encode, or None for all.
      dtype: dtype of the result.
      count: function that is called after each batch with the number of examples in it.

    Returns:
      The reduced encodings, `[examples, names, reduced_dim]`.
    """
    parts = []
    for batch in EvaluationBatches(examples, encoder.config.max_tokens, max_examples=max_examples):
        slots = np.concatenate([batch[f"{name}_slots"] for name in names])
        # Contexts and responses are reduced in the same way, so all texts are passed as contexts.
        inputs = {"context_slots": slots, "response_slots": slots[:1]}
        if encoder.config.multi_context:
            inputs["extra_context_slots"] = slots
        inputs |= {name: batch[name] for name in ("token_ids", "segment_lengths")}
        reduced = np.asarray(encoder.predict_on_batch(inputs)["reduced_context"]).astype(dtype)
        parts.append(reduced.reshape(len(names), -1, reduced.shape[-1]).swapaxes(0, 1))
        count(len(parts[-1]))
    return np.concatenate(parts)


def _measured(
    reduced: np.ndarray, taught: np.ndarray, kernel: np.ndarray, turned: np.ndarray
) -> dict[str, Any]:
    """Measure how well the vectors of held-out texts agree with the teacher's vectors."""
    texts = len(reduced)
    cosine = float((unit_rows(reduced @ kernel) * taught).sum(axis=1).mean())
    # The texts to compare are chosen at random. The first ones in the file may all come from one
    # source.
    compared = np.random.default_rng(0).permutation(texts)[:_COMPARED_TEXTS]
    reduced, taught = reduced[compared], taught[compared]
    pairs = np.triu_indices(len(compared), 1)

    def correlation(vectors: np.ndarray) -> float:
        return float(spearmanr((vectors @ vectors.T)[pairs], expected).statistic)

    expected = (taught @ taught.T)[pairs]
    mapped = reduced @ turned
    dims = [mapped.shape[1], *(dim for dim in SHORTER_DIMS if dim < mapped.shape[1])]
    return {
        "texts": texts,
        "cosine": cosine,
        "compared": len(compared),
        "spearman": {str(dim): correlation(unit_rows(mapped, dim)) for dim in dims},
        "spearman_of_r": correlation(unit_rows(reduced)),
        "spearman_of_sentences": correlation(unit_rows(sentence_encodings(reduced, turned))),
    }


def similarity_report(facts: dict[str, Any]) -> str:
    """Format the result of `fit_similarity` for a terminal."""
    held_out = facts["held_out"]
    shown = ", ".join(f"{dim}: {100 * value:.1f}" for dim, value in held_out["spearman"].items())
    return "\n".join(
        [
            f"fitted to {facts['texts']:,} texts and the vectors of {facts['teacher']}",
            f"on {held_out['texts']:,} held-out texts: mean cosine to the teacher's vector "
            f"{held_out['cosine']:.3f}",
            f"on {held_out['compared']:,} of them: Spearman correlation with the teacher's "
            f"cosines, × 100, by number of dimensions: {shown}; with sentence encodings: "
            f"{100 * held_out['spearman_of_sentences']:.1f}, with r: "
            f"{100 * held_out['spearman_of_r']:.1f}",
        ]
    )


def taught_texts(
    encoder: DualEncoder,
    examples: Examples,
    teacher: TeacherVectors,
    *,
    max_examples: int | None = None,
    count: Callable[[int], None] = lambda examples: None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the reduced encodings and the teacher's vectors for the texts in examples.

    Args:
      encoder: dual encoder that encodes the texts.
      examples: pairs or single texts.
      teacher: the teacher's vectors for these examples.
      max_examples: maximum number of examples to encode, or None for all.
      count: function that is called after each batch with the number of examples in it.

    Returns:
      A tuple of the reduced encodings, float32 `[texts, reduced_dim]`, and the teacher's vectors,
      float32 `[texts, teacher_dim]`. Each response follows its context.
    """
    names = taught_names(examples)
    reduced = encoded_texts(encoder, examples, names, max_examples=max_examples, count=count)
    columns = teacher.columns(examples.load(np.arange(len(reduced))))
    vectors = np.stack([columns[f"teacher_{name}"] for name in names], axis=1).astype(np.float32)
    return reduced.reshape(-1, reduced.shape[-1]), vectors.reshape(-1, vectors.shape[-1])
