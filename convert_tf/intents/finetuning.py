"""Fine-tune the encoder of an intent classifier, and use the result if it is more accurate.

The upper blocks of the encoder are trained to distinguish intents, with a few examples per intent.
The outputs of the lower blocks are computed only once. A batch contains several examples of each of
its intents, so that every example can be moved closer to another example of the same intent.

The final weights are a weighted mean of the weights before and after training. With these weights,
logistic regression was usually about as accurate as with the trained weights, or more accurate.

Reference: arXiv 2004.11362 (supervised contrastive loss); arXiv 2109.06349 (both losses for few
examples of intents); arXiv 2109.01903 (means of weights before and after fine-tuning).
"""

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from convert_tf.checkpoints.facts import training_facts
from convert_tf.checkpoints.folder import load_checkpoint, load_similarity_map, save_checkpoint
from convert_tf.checkpoints.kinds import kind_of
from convert_tf.checkpoints.vocabulary import plain_tokenizer
from convert_tf.config.train import RankingTraining
from convert_tf.data.packing import ROW_TOKENS, Places, TokenIds, packed_places
from convert_tf.encoding.sentence_encoder import SIMILARITY_REMEDY
from convert_tf.export.hub.writing import export_module
from convert_tf.intents.classifier import IntentClassifier, check_unvalidated
from convert_tf.intents.cross_validation import Fold, are_clearly_more, held_parts, most_right
from convert_tf.intents.data import LabelledTexts
from convert_tf.intents.encodings import ANY_KIND, KINDS_OF_ENCODING
from convert_tf.intents.examples import IntentExamples, name_in_words
from convert_tf.intents.head import Head, quick_options, train_logistic
from convert_tf.layers.side_network import l2_normalize
from convert_tf.models.distillation import sentence_encodings
from convert_tf.models.encoder import DualEncoder, segments_of
from convert_tf.models.losses import intent_losses
from convert_tf.numerics.devices import choose_precision
from convert_tf.numerics.initializers import set_seed
from convert_tf.numerics.vectors import unit_rows
from convert_tf.training.loop import take_steps
from convert_tf.training.optimizers import learning_rate_schedule
from convert_tf.training.step import Objective, compile_with
from convert_tf.training.task import Batch, Task

# How the encoder is trained. docs/decisions.md compares these values with others.
_EPOCHS, _LEAST_STEPS, _MOST_STEPS = 12, 60, 1_000
_INTENTS, _EXAMPLES = 32, 2  # intents per batch, and examples per intent
_LEARNING_RATE, _WARM_UP = 3e-4, 0.1
_SHARE = 0.75  # share of the trained weights in the mean
_ATTENTION_DROPOUT = 0.1
_ROW_MULTIPLE = 4
_ENCODED_AT_ONCE = 128
_TRAINED_BLOCKS = 3  # number of upper blocks to train
_HEAD_SPEED = 10  # the head learns this many times as fast as the encoder
_ENCODING_DROPOUT = 0.5
_TEMPERATURE = 0.1
_FEW = 500  # if there are more examples, only two folds are held out


class IntentObjective(Objective):
    """The upper blocks of an encoder with a linear head, and their loss.

    The loss is the sum of the cross-entropy and the supervised contrastive loss in a batch.

    Masking: padding is never read.

    Args:
      encoder: the encoder. Only its last `_TRAINED_BLOCKS` blocks and its reduction are trained.
      head: the initial weights of the linear head, which has one layer.
      similarity_map: the encoder's map from r to similarity vectors, float32 `[reduced_dim, n]`;
        None if the encoder has no similarity vectors.

      Call arguments:
      inputs: a dict with
        - `activations`: float32 `[rows, tokens, dim]`, the outputs of the lower blocks for packed
          rows;
        - `segment_lengths`: int32 `[rows, segments]`, the number of tokens of each text in a row;
        - `slots`: int32 `[batch]`, the places of the texts in the rows;
        - `labels`: int32 `[batch]`, the intents of the texts, which only the loss reads.

    Returns:
      A dict with
      - `encodings`: float32 `[batch, reduced_dim]`, the sentence encodings, normalised to length 1;
      - `logits`: float32 `[batch, intents]`, the outputs of the head.

    Example:
      outputs = IntentObjective(encoder, head, None)(inputs, training=True)
    """

    def __init__(self, encoder: DualEncoder, head: Head, similarity_map: np.ndarray | None) -> None:
        super().__init__(encoder)
        self._similarity_map = similarity_map
        frozen = [encoder.trunk.embedding, *encoder.trunk.blocks[: first_trained_block(encoder)]]
        frozen += [encoder.context_side, encoder.response_side, encoder.extra_context_side]
        for layer in (*frozen, encoder.both_side):
            if layer is not None:  # single-context encoders lack some side networks
                layer.trainable = False
        self.dropout = keras.layers.Dropout(_ENCODING_DROPOUT, dtype="float32")
        self.dense = keras.layers.Dense(len(head.layers[0].bias), dtype="float32")
        self.dense.build((None, len(head.layers[0].kernel)))
        self.dense.set_weights([values / _HEAD_SPEED for values in head.layers[0]])
        self.built = True

    def outputs_of(self, inputs: dict[str, Any], training: bool) -> dict[str, Any]:
        reduced = reduced_above(self.encoder, inputs, training=training)
        if self._similarity_map is not None:
            reduced = sentence_encodings(reduced, self._similarity_map)
        encodings = l2_normalize(reduced)
        # Adam changes all weights by steps of similar size. The factor makes the head learn faster.
        logits = _HEAD_SPEED * self.dense(self.dropout(encodings, training=training))
        return {"encodings": encodings, "logits": logits}

    def loss_of(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> Any:
        labels, logits = inputs["labels"], outputs["logits"]
        entropy = keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)
        contrast, _ = intent_losses(outputs["encodings"], labels, labels, scale=1 / _TEMPERATURE)
        return ops.mean(entropy) + ops.mean(contrast)


def reduced_above(encoder: DualEncoder, inputs: dict[str, Any], *, training: bool) -> Any:
    """Apply the upper blocks and the reduction: return reduced encodings, float32 `[batch, dim]`.

    Args:
      encoder: the encoder.
      inputs: see `IntentObjective`.
      training: whether dropout is active.
    """
    lengths, x = inputs["segment_lengths"], inputs["activations"]
    segment_ids, _, mask = segments_of(lengths, ops.shape(x)[1])
    x = ops.cast(x, encoder.trunk.compute_dtype)
    for block in encoder.trunk.blocks[first_trained_block(encoder) :]:
        x = block(x, attention_mask=mask, training=training)
    reduced = encoder.reduction(x, segment_ids, lengths, mask)
    reduced = ops.reshape(reduced, (-1, encoder.config.reduced_dim))
    return ops.cast(ops.take(reduced, inputs["slots"], axis=0), "float32")


def first_trained_block(encoder: DualEncoder) -> int:
    """Return the index of the first trained block. The blocks below it are frozen."""
    return max(len(encoder.trunk.blocks) - _TRAINED_BLOCKS, 0)


class FewShotTuner:
    """Trains an encoder on selected texts from a list. Each training starts from the checkpoint.

    Args:
      checkpoint: the folder of a run or a module.
      texts: all texts to train on or encode. Each token takes `4 · embedding_dim` bytes of memory.
      precision: the Keras dtype policy of the encoder, such as `"float32"`.
      seed: seed for batches and dropout.

    Attributes:
      texts, seed: as given.
      encoder: the encoder, with the weights of the checkpoint or of the last training.
      similarity_map: float32 `[reduced_dim, n]`, the map from reduced encodings to similarity
        vectors; None if the encoder has no similarity vectors.

    Raises:
      CheckpointError: if the checkpoint is damaged.

    Example:
      tuner = FewShotTuner("hub_modules/convert/2", texts, precision="float32", seed=0)
      frozen = tuner.encodings()
      tuner.train(labels, places)
      tuned = tuner.encodings()
    """

    def __init__(
        self, checkpoint: str | os.PathLike[str], texts: Sequence[str], *, precision: str, seed: int
    ) -> None:
        self.texts, self.seed = list(texts), seed
        self._checkpoint = checkpoint
        self.similarity_map = load_similarity_map(checkpoint)
        set_seed(seed)
        self.encoder, self._vocabulary = load_checkpoint(
            checkpoint, dtype=precision, attention_dropout=_ATTENTION_DROPOUT
        )
        self.encoder.trunk.jit_compile_feed_forward()
        config = self.encoder.config
        self._row_tokens = max(ROW_TOKENS, config.max_tokens)
        tokenizer = plain_tokenizer(self._vocabulary, config)
        token_ids = TokenIds(*tokenizer.flat_ids(texts, config.max_tokens))
        order = np.argsort(token_ids.lengths, kind="stable")
        pieces = range(_ENCODED_AT_ONCE, len(order), _ENCODED_AT_ONCE)
        self._similar_lengths = np.split(order, pieces)
        self._activations = self._below(token_ids)
        # The variables include the random state of dropout, so repeated training gives equal
        # results.
        self._start = [np.array(variable) for variable in self.encoder.variables]
        self._frozen = self.sentences(self.encodings())

    def encodings(self) -> np.ndarray:
        """Return the reduced encodings of all texts, scaled to length 1: float32 `[texts, dim]`."""
        reduced = np.zeros((len(self.texts), self.encoder.config.reduced_dim), np.float32)
        for numbers in self._similar_lengths:
            above = reduced_above(self.encoder, self.packed(numbers), training=False)
            reduced[numbers] = ops.convert_to_numpy(above)
        return unit_rows(reduced)

    def sentences(self, encodings: np.ndarray) -> np.ndarray:
        """Turn reduced encodings from `encodings` into sentence encodings with length 1."""
        if self.similarity_map is None:
            return encodings
        return unit_rows(sentence_encodings(encodings, self.similarity_map))

    def train(self, labels: np.ndarray, places: np.ndarray) -> dict[str, Any]:
        """Train the encoder on some of the texts, starting from the weights of the checkpoint.

        Args:
          labels: int `[n]`, the intents of these texts, numbered from 0 without gaps.
          places: int `[n]`, indices of the texts in `texts`.

        Returns:
          A dict with the numbers of `steps` and `examples`.

        Raises:
          FloatingPointError: if the loss or a weight is not finite.
        """
        for variable, values in zip(self.encoder.variables, self._start, strict=True):
            variable.assign(values)
        task = FineTuning(self, labels, places, train_logistic(self._frozen[places], labels))
        before = [np.array(v) for v in self.encoder.trainable_variables]
        take_steps(task)
        for variable, values in zip(self.encoder.trainable_variables, before, strict=True):
            variable.assign(values + _SHARE * (np.array(variable) - values))
        return {"steps": task.config.steps, "examples": len(labels)}

    def save(self, folder: str | os.PathLike[str], facts: Mapping[str, Any]) -> None:
        """Write the current encoder as a checkpoint, with `facts` in its `training.json`.

        Raises:
          FileWriteError: if the checkpoint cannot be written.
        """
        known = training_facts(self._checkpoint)
        # These facts were measured before fine-tuning and no longer hold.
        for measured in ("similarity", "opposites"):
            known.pop(measured, None)
        save_checkpoint(
            Path(folder),
            self.encoder,
            vocabulary=self._vocabulary,
            training={**known, "intent_finetuning": dict(facts)},
            similarity_map=self.similarity_map,
        )

    def packed(self, numbers: np.ndarray) -> dict[str, np.ndarray]:
        """Return the inputs of `IntentObjective` for the texts numbered `numbers`, int `[n]`."""
        activations = self._activations.take(numbers)
        places = self._places(activations)
        return {
            "activations": places.rows_of(activations.flat, np.float32(0)),
            "segment_lengths": places.segment_lengths,
            "slots": places.slots,
        }

    def _below(self, token_ids: TokenIds) -> TokenIds:
        """Return the outputs of the lower blocks, a float32 `[dim]` vector for each token."""
        trunk, config = self.encoder.trunk, self.encoder.config
        outputs = np.zeros((len(token_ids.flat), config.embedding_dim), np.float32)
        tokens = TokenIds(np.arange(len(outputs)), token_ids.row_splits)
        for numbers in self._similar_lengths:
            chosen = tokens.take(numbers)
            places = self._places(chosen)
            rows = places.rows_of(token_ids.flat[chosen.flat], np.int32(config.num_ids))
            lengths = ops.convert_to_tensor(places.segment_lengths)
            _, positions, mask = segments_of(lengths, self._row_tokens)
            x = trunk.embedding(rows, positions)
            for block in trunk.blocks[: first_trained_block(self.encoder)]:
                x = block(x, attention_mask=mask)
            flat = ops.convert_to_numpy(ops.cast(x, "float32")).reshape(-1, outputs.shape[1])
            outputs[chosen.flat] = flat[places.tokens]
        return TokenIds(outputs, token_ids.row_splits)

    def _places(self, texts: TokenIds) -> Places:
        return packed_places(texts.lengths, self._row_tokens, row_multiple=_ROW_MULTIPLE)


class FineTuning(Task):
    """Trains the encoder of a `FewShotTuner` in memory.

    Args:
      tuner: the tuner. Its encoder must still have the weights of the checkpoint.
      labels, places: see `FewShotTuner.train`.
      head: the initial weights of the linear head.
    """

    unit = "texts"
    in_memory = True
    remedy = "Nothing was written. Pass --precision=float32, or omit --finetune."

    def __init__(
        self, tuner: FewShotTuner, labels: np.ndarray, places: np.ndarray, head: Head
    ) -> None:
        self._tuner, self._labels, self._places = tuner, labels.astype(np.int32), places
        steps = number_of_steps(len(labels))
        self.config = RankingTraining(
            steps=steps,
            learning_rate=_LEARNING_RATE,
            final_learning_rate=0.0,
            warmup_steps=round(_WARM_UP * steps),
            seed=tuner.seed,
        )
        set_seed(tuner.seed)
        self.model = IntentObjective(tuner.encoder, head, tuner.similarity_map)
        compile_with(self.model, keras.optimizers.Adam(learning_rate_schedule(self.config)))

    def batches(self, step: int) -> Iterator[Batch]:
        rng = np.random.default_rng(self.config.seed)
        for chosen in balanced_batches(self._labels, rng):
            inputs = self._tuner.packed(self._places[chosen])
            yield Batch({**inputs, "labels": self._labels[chosen]}, len(chosen))


def number_of_steps(examples: int) -> int:
    """Return the number of training steps: twelve epochs, but at least 60 and at most 1,000."""
    steps = round(_EPOCHS * examples / (_INTENTS * _EXAMPLES))
    return min(max(steps, _LEAST_STEPS), _MOST_STEPS)


def balanced_batches(labels: np.ndarray, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Yield batches without end. A batch has the same number of examples for each of its intents.

    Args:
      labels: int `[n]`, the intent of each example.
      rng: random generator for the order.

    Yields:
      The indices of at most 64 examples, int: two examples for each of 32 intents, or more examples
      for fewer intents. An intent is repeated only after all other intents have been used, and an
      example only after all other examples of its intent.
    """
    places = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    intents = min(_INTENTS, len(places))
    examples = _INTENTS * _EXAMPLES // intents
    of_intent = [_without_end(place, rng) for place in places]
    waiting: list[int] = []
    while True:
        while len({*waiting}) < intents:
            waiting += rng.permutation(len(places)).tolist()
        chosen = [*dict.fromkeys(waiting)][:intents]
        for intent in chosen:
            waiting.remove(intent)
        yield np.array([next(of_intent[intent]) for intent in chosen for _ in range(examples)])


def _without_end(items: np.ndarray, rng: np.random.Generator) -> Iterator[int]:
    while True:
        yield from rng.permutation(items).tolist()


def finetuned_classifier(
    checkpoint: str,
    examples: LabelledTexts,
    validation: LabelledTexts | None,
    *,
    output: str,
    params: Mapping[str, Any],
    precision: str,
    overwrite: bool,
    keep_examples: bool = True,
) -> IntentClassifier:
    """Train a classifier and its encoder, and write both to a folder.

    The fine-tuned encoder is used if it gives more correct answers than the frozen encoder, by more
    than one standard error of the difference. Otherwise the frozen encoder is used. Both are judged
    on `validation` or on held-out examples, each with its best kind of encodings. If `head` is
    `"network"`, logistic regression is also tried. Whether to use intent names as examples is
    decided with the frozen encoder.

    Args:
      checkpoint: the folder of the run or module to fine-tune.
      examples: texts and their intents.
      validation: texts and intents on which the two encoders are compared. If None, each third of
        the examples is held out in turn. With more than 500 examples, only two of the thirds are
        held out. With more than 3,000 examples, only one third is held out.
      output: the folder to write.
      params: parameters of `IntentClassifier`.
      precision: the number format of the encoder, as passed to `choose_precision`.
      overwrite: whether to replace an existing folder.
      keep_examples: whether the folder stores the texts of the examples.

    Raises:
      ValueError: if the data are unusable, or weights of the trained head are not finite; or if
        `params` contain a grid, or `patience` for a network, and there are no validation data.
      FloatingPointError: if the loss or a weight of the encoder is not finite.
    """
    classifier = IntentClassifier(checkpoint, **params)
    classifier.check_options()
    if validation is None:
        check_unvalidated(classifier)
    names = filter(None, map(name_in_words, examples.labels))
    texts = [*examples.texts, *(validation.texts if validation else []), *names]
    tuner = FewShotTuner(
        checkpoint,
        [*dict.fromkeys(texts)],
        precision=choose_precision(precision),
        seed=classifier.random_state,
    )
    comparison = _Comparison(tuner, examples, validation, classifier)
    frozen, tuned, folds = comparison.frozen, comparison.tuned, None
    is_tuned = comparison.is_tuned_better
    print(
        f"held-out accuracy: {frozen.accuracy:.2%} with the frozen encoder and the {frozen.head} "
        f"head, {tuned.accuracy:.2%} with the fine-tuned one and the {tuned.head} head, on "
        f"{len(tuned.is_right):,} examples: "
        f"the {'fine-tuned' if is_tuned else 'frozen'} one is kept"
    )
    if is_tuned:
        folds = comparison.folds or ()  # there are none with validation data
        if folds:  # the encoder still has the weights of the last fold
            comparison.train(np.ones(len(comparison.examples.texts), bool))
        print(
            f"The encoder was trained in {comparison.training['steps']:,} steps. Context and "
            "response encodings were not trained. Use the original module to rank responses."
        )
    with tempfile.TemporaryDirectory() as scratch:
        trained = checkpoint
        if is_tuned:
            trained = os.path.join(scratch, "checkpoint")
            tuner.save(trained, comparison.described())
        module = _as_module(trained, os.path.join(scratch, "module"))
        best = tuned if is_tuned else frozen
        names_param = "always" if comparison.has_names else None
        classifier.set_params(encoder=module, head=best.head, kind=best.kind, names=names_param)
        classifier.fit(*examples, validation=validation, folds=folds)
        classifier.save(
            output,
            overwrite=overwrite,
            module=module,
            notes={"finetuning": comparison.described()},
            keep_examples=keep_examples,
        )
    return IntentClassifier.load(output)


def _as_module(trained: str, folder: str) -> str:
    """Export a run as a module, or copy a module, and return the new folder."""
    if kind_of(trained).is_module:
        return shutil.copytree(trained, folder)
    export_module(trained, folder)
    return folder


class _Best(NamedTuple):
    """The best kind of encodings and head for an encoder.

    Attributes:
      kind, head: the names of the kind and the head.
      is_right: bool `[n]`, which of the judged examples are answered correctly.
    """

    kind: str
    head: str
    is_right: np.ndarray

    @property
    def accuracy(self) -> float:
        """The share of judged examples that are answered correctly."""
        return float(self.is_right.mean())


class _Comparison:
    """Compares classifiers on frozen and on fine-tuned encodings.

    Names of intents are used to train heads but not the encoder, because they did not improve it.

    Attributes:
      examples: examples with frozen encodings. They include the names of intents if the names help.
      has_names: whether `examples` include names of intents.
      frozen, tuned: the best kind of encodings and the best head for the frozen and for the
        fine-tuned encoder.
      folds: folds with fine-tuned encodings; None if there are validation data.
      training: the numbers of `steps` and `examples` of the last training.

    Raises:
      ValueError: if the data are unusable, or the encoder has no encodings of the classifier's
        `kind`.
    """

    def __init__(
        self,
        tuner: FewShotTuner,
        examples: LabelledTexts,
        validation: LabelledTexts | None,
        classifier: IntentClassifier,
    ) -> None:
        self._tuner, self._map = tuner, tuner.similarity_map
        self._places = {text: place for place, text in enumerate(tuner.texts)}
        seed = classifier.random_state
        self._options = quick_options({**classifier.get_params(deep=False), "seed": seed})
        # Fine-tuning makes intents linearly separable, so no hidden layer is needed.
        heads = [classifier.head, *(["logistic"] if classifier.grid is None else [])]
        kinds = [classifier.kind]
        if classifier.kind == ANY_KIND:
            kinds = [*KINDS_OF_ENCODING][: 1 if self._map is None else None]
        elif classifier.kind == "similarity" and self._map is None:
            raise ValueError(
                f"--kind=similarity needs an encoder with similarity vectors. {SIMILARITY_REMEDY}"
            )
        self._variants = [(kind, head) for kind in kinds for head in dict.fromkeys(heads)]
        vectors = tuner.encodings()
        prepared, checked = classifier.prepared(
            examples, None, validation, lambda texts: tuner.sentences(vectors[self._rows(texts)])
        )
        self.examples = self._with(vectors, prepared)
        checked = checked and self._with(vectors, checked)
        self.has_names = bool(prepared.is_name.any())
        parts = [] if checked else self._held_parts(seed)
        frozen_folds = [Fold(part, self.examples.encodings) for part in parts]
        self.frozen = self._best(self.examples, checked, frozen_folds)
        tuned, folds = self.examples, []
        for part in parts:
            tuned = self._with(self._tuned_vectors(~part), tuned)
            folds.append(Fold(part, tuned.encodings))
        if checked:
            vectors = self._tuned_vectors(np.ones(len(tuned.texts), bool))
            tuned, checked = self._with(vectors, tuned), self._with(vectors, checked)
        self.tuned = self._best(tuned, checked, folds)
        self.folds = [self._in(self.tuned.kind, fold) for fold in folds] or None

    @property
    def is_tuned_better(self) -> bool:
        """Whether the fine-tuned encoder is clearly more accurate; see `are_clearly_more`."""
        return are_clearly_more(self.tuned.is_right, self.frozen.is_right)

    def described(self) -> dict[str, Any]:
        """Return the comparison as JSON values, to store with the encoder and the classifier."""
        return {
            "has_names": self.has_names,
            "accuracy_frozen": self.frozen.accuracy,
            "kind_frozen": self.frozen.kind,
            "head_frozen": self.frozen.head,
            **self.training,
            "accuracy": self.tuned.accuracy,
            "kind": self.tuned.kind,
            "head": self.tuned.head,
            "is_finetuned": self.is_tuned_better,
            "judged_examples": len(self.tuned.is_right),
        }

    def train(self, is_trained: np.ndarray) -> None:
        """Train the encoder on the in-scope examples in `is_trained`, bool `[n]`, without names."""
        chosen = self.examples.rows(is_trained & self.examples.is_inside & ~self.examples.is_name)
        # The head only has outputs for intents with examples.
        labels = np.unique(chosen.labels, return_inverse=True)[1]
        self.training = self._tuner.train(labels, self._rows(chosen.texts))

    def _rows(self, texts: list[str]) -> np.ndarray:
        """Return the positions of texts in the tuner's list of texts: int `[texts]`."""
        return np.array([self._places[text] for text in texts], int)

    def _in(self, kind: str, encoded: Any) -> Any:
        """Return examples or a fold whose reduced encodings are converted to another kind."""
        encodings = encoded.encodings
        if kind == "sentence":
            return encoded._replace(encodings=self._tuner.sentences(encodings))
        if kind == "reduced":
            return encoded
        return encoded._replace(encodings=unit_rows(encodings @ self._map))

    def _with(self, vectors: np.ndarray, examples: IntentExamples) -> IntentExamples:
        """Return examples with encodings from `vectors`: one row for each text of the tuner."""
        return examples._replace(encodings=vectors[self._rows(examples.texts)])

    def _tuned_vectors(self, is_trained: np.ndarray) -> np.ndarray:
        """Call `train`, and return the reduced encodings of all texts in the tuner."""
        self.train(is_trained)
        return self._tuner.encodings()

    def _held_parts(self, seed: int) -> list[np.ndarray]:
        """Return masks of the examples to hold out in turn, each bool `[n]`."""
        parts = held_parts(self.examples, seed=seed)
        if not parts:
            raise ValueError(
                "Each intent has only one distinct example, so none can be held out to judge the "
                "fine-tuned encoder. Add examples, or pass validation data."
            )
        is_many = (self.examples.is_inside & ~self.examples.is_name).sum() > _FEW
        return parts[:2] if is_many else parts

    def _best(
        self, examples: IntentExamples, checked: IntentExamples | None, folds: list[Fold]
    ) -> _Best:
        """Return the kind and head that answer the most examples correctly."""
        judged = most_right(
            [
                (
                    {**self._options, "head": head},
                    self._in(kind, examples),
                    checked and self._in(kind, checked),
                    [self._in(kind, fold) for fold in folds],
                )
                for kind, head in self._variants
            ]
        )
        assert judged is not None  # there is a fold
        place, _, is_right = judged
        return _Best(*self._variants[place], is_right)
