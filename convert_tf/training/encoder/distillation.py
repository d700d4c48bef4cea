"""Distillation in a run: teacher vectors of pairs and of single texts, and the map to them."""

from typing import NamedTuple

import numpy as np

from convert_tf.checkpoints.vocabulary import check_same_vocabulary
from convert_tf.config.model import ModelConfig
from convert_tf.config.train import EncoderTraining
from convert_tf.data.schema import Examples, SelectedExamples
from convert_tf.data.teacher_vectors import TeacherVectors
from convert_tf.data.token_arrays import ArrayFolder
from convert_tf.data.utterances import UtteranceDraws, Utterances
from convert_tf.models.distillation import fitted_map, similarity_map
from convert_tf.models.encoder import DualEncoder
from convert_tf.training.encoder.sources import Folder, as_token_ids
from convert_tf.training.teaching.similarity import taught_texts

_FITTED_EXAMPLES = 4_096  # whose encodings and teacher's vectors make a map
_TURNED_EXAMPLES = 1_024  # whose encodings decide which numbers of vectors for similarity are first


class DistillationTargets(NamedTuple):
    """Examples (pairs or single texts) and their teacher vectors."""

    examples: Examples
    vectors: TeacherVectors

    def projection(self, encoder: DualEncoder) -> np.ndarray:
        """Return a map from r to the teacher's vectors, fitted to the first examples.

        Args:
          encoder: the encoder that computes r.

        Returns:
          float32 `[reduced_dim, teacher_dim]`, as from `fitted_map`.
        """
        texts = taught_texts(encoder, self.examples, self.vectors, max_examples=_FITTED_EXAMPLES)
        return fitted_map(*texts)

    def similarity_map(self, encoder: DualEncoder, projection: np.ndarray) -> np.ndarray:
        """Return the map from r to vectors for similarity, rotated by the first examples.

        Args:
          encoder: the encoder that computes r.
          projection: float32 `[reduced_dim, teacher_dim]`, the trained map to its vectors.

        Returns:
          float32 `[reduced_dim, n]`, as from `models.distillation.similarity_map`.
        """
        reduced, _ = taught_texts(
            encoder, self.examples, self.vectors, max_examples=_TURNED_EXAMPLES
        )
        return similarity_map(reduced, projection)


class DistillationData:
    """The parts of a run's data that have teacher vectors.

    Args:
      folder: folder of the training data.
      examples: the training split.
      trained_on: the examples of it that are trained on.
      model, config: configurations of the run.

    Attributes:
      pairs: teacher vectors of the pairs, or None.
      ranking: vectors of a teacher whose ranking is learnt, or None.
      columns: the vectors in a batch of pairs.
      utterances: single texts that are trained on in addition to pairs, or None.
      targets: examples that the map to the teacher's vectors is fitted to: the pairs, or the single
        texts if only these have vectors. None without a teacher.

    Raises:
      ValueError: if vectors are missing, damaged, or of other texts.
    """

    def __init__(
        self,
        folder: Folder,
        examples: Examples,
        trained_on: Examples,
        *,
        model: ModelConfig,
        config: EncoderTraining,
    ):
        def opened(flag: str, *, is_for_all: bool) -> TeacherVectors | None:
            path = getattr(config, flag)
            if not path:
                return None
            ids = as_token_ids(examples, config.data, "Teacher vectors go with", f"--{flag}")
            teacher = TeacherVectors(path, ids, vocab_size=folder.vocab_size, flag=flag)
            if is_for_all:
                _check_all_taught(teacher, path, trained_on)
            return teacher

        self.pairs = opened("teacher", is_for_all=bool(config.distillation))
        self.ranking = opened("ranking_teacher", is_for_all=True)
        learnt = (self.pairs if config.distillation else None, self.ranking)
        self.columns = [teacher for teacher in learnt if teacher is not None]
        self.utterances: UtteranceDraws | None = None
        self.targets = None if self.pairs is None else DistillationTargets(trained_on, self.pairs)
        if not config.utterances:
            return
        utterances, vectors = _open_utterances(folder, model, config), None
        if config.utterance_teacher:
            vectors = _open_utterance_teacher(utterances, folder, config, self.pairs)
            self.targets = self.targets or _drawn_texts(utterances, vectors)
        self.utterances = UtteranceDraws(
            utterances,
            per_pair=config.utterances_per_pair,
            seed=config.seed,
            in_pairs=bool(config.intent_contrast),
            teacher=vectors,
        )


def _drawn_texts(utterances: Utterances, vectors: TeacherVectors) -> DistillationTargets:
    """Return some texts of all sources in random order. They are stored by source."""
    drawn = np.random.default_rng(0).permutation(vectors.numbers)[:_FITTED_EXAMPLES]
    return DistillationTargets(SelectedExamples(utterances.examples, drawn), vectors)


def _check_all_taught(teacher: TeacherVectors, name: str, trained_on: Examples) -> None:
    """Raise `ValueError` if some of the training examples have no vectors."""
    numbers = trained_on.load(np.arange(trained_on.num_examples))
    missing = np.setdiff1d(numbers, teacher.numbers, assume_unique=True)
    if len(missing):
        raise ValueError(
            f"{len(missing):,} of the {len(numbers):,} examples to train on have no teacher "
            f"vectors in {name!r}, which has {len(teacher.numbers):,}. The first of them is number "
            f"{missing[0] + 1:,}. Set --train_examples to at most the --max_examples of "
            "`convert-tf teach`, the same --source_shares and no --first_train_example, or write "
            "vectors of more examples."
        )


def _open_utterances(folder: Folder, model: ModelConfig, config: EncoderTraining) -> Utterances:
    """Return the single texts that are trained on in addition to pairs.

    Raises:
      ValueError: if they were tokenized with another vocabulary.
    """
    own = ArrayFolder(config.utterances)
    rule = "Single texts are cut into the tokens of the pairs"
    remedy = "Write them again with `convert-tf tokenize --utterances`."
    check_same_vocabulary(own.vocabulary, folder.vocabulary, rule=rule, remedy=remedy)
    if own.num_oov_buckets != folder.num_oov_buckets:
        raise ValueError(
            f"{rule}. Received: {config.utterances!r}, with {own.num_oov_buckets} hash buckets in "
            f"place of {folder.num_oov_buckets}. {remedy}"
        )
    return Utterances(own, "train", max_tokens=model.max_tokens)


def _open_utterance_teacher(
    utterances: Utterances, folder: Folder, config: EncoderTraining, pairs: TeacherVectors | None
) -> TeacherVectors:
    """Return the teacher vectors of the single texts.

    Raises:
      ValueError: if they are damaged, belong to other texts, or the pairs have another teacher.
    """
    own = utterances.examples
    vectors = TeacherVectors(config.utterance_teacher, own, vocab_size=folder.vocab_size)
    if pairs is not None and (vectors.teacher, vectors.dim) != (pairs.teacher, pairs.dim):
        raise ValueError(
            "The vectors of pairs and of single texts are of different teachers, or have different "
            f"dimensions: {pairs.teacher!r} ({pairs.dim}) and {vectors.teacher!r} "
            f"({vectors.dim}). Write one of the two again with `convert-tf teach`, or omit "
            "--teacher."
        )
    missing = own.num_examples - len(vectors.numbers)
    if missing > 0:
        print(f"{missing:,} of {own.num_examples:,} single texts have no vector")
    return vectors
