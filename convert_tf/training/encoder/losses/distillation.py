"""The distillation loss, for learning the vectors of another sentence encoder."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from convert_tf.config.base import Config, check, option
from convert_tf.config.model import ModelConfig
from convert_tf.data.schema import PAIR, Addition, SelectedExamples
from convert_tf.data.teacher_vectors import TeacherVectors, are_same_vectors
from convert_tf.training.encoder.losses.base import Loss

if TYPE_CHECKING:
    from convert_tf.training.encoder.data import EncoderData

FITTED_EXAMPLES = 4_096  # number of examples that an initial map is fitted to
_TURNED_EXAMPLES = 1_024  # number of examples used to compute the order of the dimensions


@dataclasses.dataclass(frozen=True)
class DistillationOptions(Config):
    """Options for distilling a teacher's vectors.

    Attributes:
      teacher: Folder of teacher vectors from convert-tf teach.
      utterance_teacher: Folder of teacher vectors for --utterances.
      distillation: Weight of the loss for learning the teacher's vectors.
      start_from_teacher: Initialise the subword table with the teacher's vectors for the subwords.
    """

    heading: ClassVar[str] = "Distillation loss"

    teacher: str = ""
    utterance_teacher: str = ""
    distillation: float = option(0.0, at_least=0)
    start_from_teacher: bool = False


class Distillation(Loss):
    """Cosine distance between mapped reduced encodings and a teacher's vectors.

    The loss of an example is the sum of 1 − cos(r K, t) over its context, its response and the
    single texts drawn for it. Here r is the reduced encoding of a text, and t the teacher's vector
    for the text.
    The matrix K, `[reduced_dim, teacher_dim]`, is trained too. A run saves K and also the
    similarity map, which is K after a rotation (`convert_tf.models.distillation`).

    Example:
      options = {"data": "ids/", "teacher": "vectors/", "distillation": 1.0}
      train("convert_small", options, output="runs/distilled")
    """

    name = "distillation"
    Options = DistillationOptions
    kept_map: Any = None  # similarity map of the earlier model
    dim = 0  # dimension of the teacher's vectors
    # Examples for fitting the map, with their teacher vectors. The examples are the pairs, or the
    # single texts if the pairs have no vectors.
    targets: Any = None
    is_alone = True

    @property
    def reads_utterances(self) -> bool:
        return bool(self.options.utterance_teacher)

    def applies_to(self, model: ModelConfig) -> bool:
        return True  # without a teacher, this loss only keeps the initial model's similarity map

    def check(self, losses: Sequence[Loss]) -> None:
        options = self.options
        teacher = options.teacher or options.utterance_teacher
        check(
            bool(teacher) == bool(self.weight or options.start_from_teacher),
            "teacher or utterance_teacher must be set if, and only if, distillation or "
            "start_from_teacher is.",
            (options.teacher, options.utterance_teacher, self.weight, options.start_from_teacher),
        )
        check(
            bool(options.utterance_teacher) == bool(options.utterances and self.weight),
            "utterance_teacher must be set if, and only if, utterances and distillation both are.",
            (options.utterances, options.utterance_teacher, self.weight),
        )

    def open(self, data: "EncoderData") -> Sequence[Addition]:
        options = self.options
        additions: list[Addition] = []
        if options.start_from_teacher and data.init_from is not None:
            raise ValueError(
                f"The subword table can start from the encoder in init_from ({data.init_from!r}) "
                "or from the teacher (start_from_teacher), but not from both. Omit one of them."
            )
        self.is_alone = data.processes.number == 1
        if options.teacher:
            vectors = data.teacher_vectors(options.teacher, is_for_all=bool(self.weight))
            self.targets = data.trained_on, vectors
            additions += [vectors] if self.weight else []
        if options.utterance_teacher:
            additions.append(self._taught_utterances(data))
        if self.targets is not None:
            self.dim = self.targets[1].dim
        return additions

    def _taught_utterances(self, data: "EncoderData") -> Addition:
        utterances = data.utterances
        texts = utterances.examples
        vectors = TeacherVectors(
            self.options.utterance_teacher, texts, vocab_size=data.source.vocab_size
        )
        if self.targets is None:
            # The examples for fitting the map are drawn at random. Examples are sorted by source,
            # so the first ones would not cover all sources.
            drawn = np.random.default_rng(0).permutation(vectors.numbers)[:FITTED_EXAMPLES]
            self.targets = SelectedExamples(texts, drawn), vectors
        pairs = self.targets[1]
        if pairs is not vectors and not vectors.is_same_teacher(pairs):
            raise ValueError(
                "The vectors for pairs and for single texts come from different teachers or from "
                "different versions of a teacher, or have different dimensions: "
                f"{pairs.teacher!r} ({pairs.dim}) and {vectors.teacher!r} ({vectors.dim}). Write "
                "one of them again with `convert-tf teach`, or omit --teacher."
            )
        missing = texts.num_examples - len(vectors.numbers)
        if missing > 0:
            print(f"{missing:,} of {texts.num_examples:,} single texts have no teacher vector")
        utterances.teacher = vectors
        return utterances

    def build(self, model: Any) -> None:
        super().build(model)
        if not (self.weight and self.dim):
            return
        import keras

        from convert_tf.numerics.initializers import glorot_uniform

        model.teacher_projection = keras.layers.Dense(
            self.dim,
            use_bias=False,
            kernel_initializer=glorot_uniform(),
            dtype=model.encoder.dtype_policy,
            name="teacher_projection",
        )
        model.teacher_projection.build((None, model.encoder.config.reduced_dim))

    def __call__(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> Any:
        from keras import ops

        from convert_tf.models.distillation import vector_losses

        encodings = [(f"reduced_{name}", f"teacher_{name}") for name in PAIR]
        encodings.append(("reduced_utterance", "teacher_text"))
        losses = [
            vector_losses(self.model.similarity(outputs[reduced]), inputs[teacher])
            for reduced, teacher in encodings
            if teacher in inputs
        ]
        if not losses:
            raise ValueError(
                f"The batches contain no teacher vectors, only {', '.join(sorted(inputs))}. Call "
                "`open` of the loss before you make the batches."
            )
        of_example = (ops.shape(outputs["reduced_context"])[0], -1)
        return sum(ops.sum(ops.reshape(loss, of_example), axis=1) for loss in losses)

    def facts(self) -> dict[str, Any]:
        if self.targets is None:
            return {}
        vectors = self.targets[1]
        return {"teacher": vectors.teacher, "teacher_sample": vectors.sample}

    def start(self, init_from: str | None) -> None:
        if self._learns_map and init_from is not None:
            self._start_map(init_from)
        if self.targets is not None and self.options.start_from_teacher:
            from convert_tf.models.distillation import initial_rows

            encoder = self.model.encoder
            rows = initial_rows(
                self.targets[1].subwords, encoder.config.embedding_dim, seed=self.options.seed
            )
            encoder.trunk.embedding.start_from(rows)

    @property
    def _learns_map(self) -> bool:
        return self.model.has_similarity_map

    def _start_map(self, init_from: str) -> None:
        """Initialise the map to the teacher's vectors with the map of the initial run.

        With a random map, the first steps would undo what the initial run has learnt. A new map is
        fitted to some of the training texts if the initial run had another teacher, or if it is a
        module, which does not contain this map.
        """
        from convert_tf.checkpoints.facts import training_facts
        from convert_tf.checkpoints.folder import load_teacher_projection
        from convert_tf.models.distillation import fitted_map

        kernel, vectors = self.model.teacher_projection.kernel, self.targets[1]
        trained = load_teacher_projection(init_from, vectors.teacher)
        # Runs of earlier versions have no sample. For these, an equal name must do.
        sample = training_facts(init_from).get("teacher_sample", vectors.sample)
        is_same_teacher = are_same_vectors(sample, vectors.sample)
        if trained is not None and trained.shape == kernel.shape and is_same_teacher:
            kernel.assign(trained)
            print(f"the map to the teacher's vectors starts as in {init_from}")
        elif not self.is_alone:
            print(
                f"the map to the teacher's vectors starts from random values: {init_from} has no "
                "map for this teacher, and several processes cannot fit one"
            )
        else:
            kernel.assign(fitted_map(*self._taught_texts(FITTED_EXAMPLES)))
            print("the map to the teacher's vectors is fitted to training texts")

    def _taught_texts(self, max_examples: int) -> tuple[np.ndarray, np.ndarray]:
        """Return reduced encodings and teacher vectors for the first training texts."""
        from convert_tf.training.teaching.similarity import taught_texts

        return taught_texts(self.model.encoder, *self.targets, max_examples=max_examples)

    def keep(self, folder: str) -> None:
        # Several processes cannot fit a map, because no single process can read all variables.
        if not (self._learns_map and self.is_alone):
            from convert_tf.checkpoints.folder import load_similarity_map

            self.kept_map = load_similarity_map(folder)

    def to_save(self) -> dict[str, Any]:
        saved = {} if self.kept_map is None else {"similarity_map": self.kept_map}
        if not self._learns_map:
            return saved
        from keras import ops

        from convert_tf.models.distillation import similarity_map

        kernel = ops.convert_to_numpy(self.model.teacher_projection.kernel)
        saved["teacher_projection"] = kernel
        if self.is_alone:
            reduced, _ = self._taught_texts(_TURNED_EXAMPLES)
            saved["similarity_map"] = similarity_map(reduced, kernel)
        return saved
