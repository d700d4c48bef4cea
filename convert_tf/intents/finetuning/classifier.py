"""An intent classifier whose encoder is fine-tuned, where that helps."""

import os
import shutil
import tempfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from convert_tf.checkpoints.kinds import kind_of
from convert_tf.encoding.sentence_encoder import SIMILARITY_REMEDY
from convert_tf.intents.classifier import IntentClassifier
from convert_tf.intents.data import LabelledTexts
from convert_tf.intents.encodings import ANY_KIND, KINDS_OF_ENCODING
from convert_tf.intents.examples import IntentExamples, examples_of, validated
from convert_tf.intents.head import quick_options
from convert_tf.intents.heldout import (
    Answers,
    Fold,
    are_clearly_more,
    held_parts,
    judged_answers,
    right_answers,
    with_helpful_names,
)
from convert_tf.intents.names import name_in_words
from convert_tf.numerics.vectors import unit_rows

# Up to this number of examples each fold is held out; with more, all but one.
_FEW, _FOLDS = 500, 3


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

    The fine-tuned encoder is kept if it is right more often than the frozen one by more than a
    standard error of the difference. Otherwise the frozen one is used. Both are judged on
    `validation` or on held-out examples, each with its better head and kind of encodings. The
    frozen encoder decides whether the names of intents are examples.

    Args:
      checkpoint: the folder of a run or the module to fine-tune.
      examples: texts and their intents.
      validation: texts to judge on. None holds out each third of the examples in turn; with more
        than 500 examples two thirds, with more than 3,000 one.
      output: the folder to write.
      params: parameters of `IntentClassifier`.
      precision: precision policy of the encoder.
      overwrite: whether to replace an existing folder.
      keep_examples: whether the folder holds the texts of the examples.

    Raises:
      ValueError: the data are unusable, or training ended in weights that are no numbers.
    """
    from convert_tf.export.hub.writing import export_module
    from convert_tf.intents.finetuning.tuner import FewShotTuner
    from convert_tf.numerics.devices import choose_precision

    classifier = IntentClassifier(checkpoint, **params)
    classifier.check_options()
    names = filter(None, map(name_in_words, examples.labels))
    texts = [*examples.texts, *(validation.texts if validation else []), *names]
    tuner = FewShotTuner(
        checkpoint,
        list(dict.fromkeys(texts)),
        precision=choose_precision(precision),
        seed=classifier.random_state,
    )
    judged = _Judged(tuner, examples, validation, classifier)
    facts = judged.facts
    is_better = facts["is_finetuned"]
    print(
        f"held-out accuracy: {facts['accuracy_frozen']:.2%} with the frozen encoder and the "
        f"{facts['head_frozen']} head, {facts['accuracy']:.2%} with the fine-tuned one and the "
        f"{facts['head']} head, on {facts['judged_examples']:,} examples: "
        f"the {'fine-tuned' if is_better else 'frozen'} one is kept"
    )
    folds = None
    if is_better:
        folds = judged.folds
        if judged.folds is not None:  # the encoder still has the weights of the last fold
            facts |= judged.train(np.ones(len(judged.examples.texts), bool))
        print(
            f"The encoder was trained in {facts['steps']:,} steps. Context and response encodings "
            "were not trained: use the original module to rank responses."
        )
    with tempfile.TemporaryDirectory() as scratch:
        module = os.path.join(scratch, "module")
        if is_better:
            tuner.save(os.path.join(scratch, "checkpoint"), facts)
            export_module(os.path.join(scratch, "checkpoint"), module)
        elif kind_of(checkpoint).is_module:
            shutil.copytree(checkpoint, module)
        else:
            export_module(checkpoint, module)
        kept = "" if is_better else "_frozen"
        classifier.set_params(
            encoder=module,
            head=facts[f"head{kept}"],
            kind=facts[f"kind{kept}"],
            names="always" if facts["has_names"] else None,
        )
        classifier.fit(*examples, validation=validation, folds=folds)
        classifier.save(
            output,
            overwrite=overwrite,
            module=module,
            facts={"finetuning": facts},
            keep_examples=keep_examples,
        )
    return IntentClassifier.load(output)


class _Judged:
    """Compares answers from frozen and from fine-tuned encodings.

    Names of intents only train heads: they did not make the encoder better.

    Attributes:
      examples: examples with frozen encodings, and names of intents if these help.
      folds: folds with fine-tuned encodings; None if there is validation data.
      facts: `accuracy_frozen` with its `kind_frozen` of encodings and `head_frozen`; `accuracy`,
        `kind` and `head` of the fine-tuned encoder; `is_finetuned`, whether that one is better;
        `has_names`, `judged_examples`, and the facts of training.

    Raises:
      ValueError: the data are unusable, or the model has no encodings of that kind.
    """

    def __init__(
        self,
        tuner: Any,
        examples: LabelledTexts,
        validation: LabelledTexts | None,
        classifier: IntentClassifier,
    ):
        self._tuner, self._map = tuner, tuner.similarity_map
        self._places = {text: place for place, text in enumerate(tuner.texts)}
        self._seed = classifier.random_state
        self._options = quick_options({**classifier.get_params(deep=False), "seed": self._seed})
        self._has_lexical = classifier.lexical is not None
        # Fine-tuned encodings are linearly separable, so no hidden layer is needed.
        heads = [classifier.head, *(["logistic"] if classifier.grid is None else [])]
        kinds = [classifier.kind]
        if classifier.kind == ANY_KIND:
            kinds = [*KINDS_OF_ENCODING][: 1 if self._map is None else 2]
        elif classifier.kind == "similarity" and self._map is None:
            raise ValueError(
                f"--kind=similarity needs a model with vectors for similarity. {SIMILARITY_REMEDY}"
            )
        self._variants = [(kind, head) for kind in kinds for head in dict.fromkeys(heads)]
        left_out = classifier.out_of_scope_label
        outside = None if classifier.out_of_scope is None else left_out
        frozen_vectors = tuner.encodings()

        def encode(texts: list[str]) -> np.ndarray:
            return frozen_vectors[self._rows(texts)]

        self.examples, classes = examples_of(*examples, None, encode, outside)
        checked = None
        if validation is not None:
            checked = validated(*validation, classes, encode, outside)
        judged = with_helpful_names(
            self._in("sentence", self.examples),
            classes,
            lambda texts: tuner.sentences(encode(texts)),
            classifier.names,
            checked and self._in("sentence", checked),
            left_out=left_out,
            seed=self._seed,
        )
        if judged.is_name.any():
            self.examples = self.examples.with_names(classes, encode, left_out=left_out)
        self.folds: list[Fold] | None = None
        self.facts: dict[str, Any] = {}
        frozen, tuned = self._by_folds() if checked is None else self._by_validation(checked)
        right_frozen, right_tuned = self._best("_frozen", frozen), self._best("", tuned)
        self.facts |= {
            "has_names": bool(self.examples.is_name.any()),
            "is_finetuned": are_clearly_more(right_tuned, right_frozen),
            "judged_examples": len(right_tuned),
        }
        if self.folds is not None:
            self.folds = [self._in(self.facts["kind"], fold) for fold in self.folds]

    def train(self, is_trained: np.ndarray) -> dict[str, Any]:
        """Train the encoder on examples of intents in `is_trained`, bool `[n]`; return facts."""
        chosen = self.examples.rows(is_trained & self.examples.is_inside & ~self.examples.is_name)
        # There are outputs only for intents with examples.
        labels = np.unique(chosen.labels, return_inverse=True)[1]
        facts: dict[str, Any] = self._tuner.train(labels, self._rows(chosen.texts))
        return facts

    def _rows(self, texts: list[str]) -> np.ndarray:
        """Return the place of each text among the texts of the tuner: int `[texts]`."""
        return np.array([self._places[text] for text in texts], int)

    def _in(self, kind: str, encoded: Any) -> Any:
        """Return examples or a fold with encodings of a kind in place of r of length 1."""
        encodings = encoded.encodings
        if kind == "sentence":
            return encoded._replace(encodings=self._tuner.sentences(encodings))
        return encoded._replace(encodings=unit_rows(encodings @ self._map))

    def _by_folds(self) -> tuple[list[Answers], list[Answers]]:
        examples = self.examples
        parts = held_parts(examples, seed=self._seed, folds=_FOLDS)
        if (examples.is_inside & ~examples.is_name).sum() > _FEW:
            parts = parts[: _FOLDS - 1]
        if not parts:
            raise ValueError(
                "Each intent has one example, so none can be held out to judge the fine-tuned "
                "encoder. Add examples, or pass validation data."
            )
        self.folds = []
        for part in parts:
            self.facts = self.train(~part)
            self.folds.append(Fold(part, self._tuner.encodings()[self._rows(examples.texts)]))
        frozen = [Fold(part, examples.encodings) for part in parts]
        return self._answers(examples, None, frozen), self._answers(examples, None, self.folds)

    def _by_validation(self, checked: IntentExamples) -> tuple[list[Answers], list[Answers]]:
        frozen = self._answers(self.examples, checked, [])
        self.facts = self.train(np.ones(len(self.examples.texts), bool))
        vectors = self._tuner.encodings()
        examples, checked = (
            own._replace(encodings=vectors[self._rows(own.texts)])
            for own in (self.examples, checked)
        )
        return frozen, self._answers(examples, checked, [])

    def _answers(
        self, examples: IntentExamples, checked: IntentExamples | None, folds: list[Fold]
    ) -> list[Answers]:
        """Return the answers of each variant to the validation data or the folds."""
        answers: list[Answers] = []
        for kind, head in self._variants:
            found = judged_answers(
                {**self._options, "head": head},
                self._in(kind, examples),
                checked and self._in(kind, checked),
                [self._in(kind, fold) for fold in folds],
                # Words do not depend on the encoder.
                has_lexical=self._has_lexical and not answers,
            )
            assert found is not None  # there is a fold
            answers.append(found._replace(lexical=answers[0].lexical) if answers else found)
        return answers

    def _best(self, suffix: str, answers: list[Answers]) -> np.ndarray:
        """Note the best variant in `facts`, and return which examples it answers right."""
        right = [right_answers(each) for each in answers]
        place = int(np.argmax([own.mean() for own in right]))
        kind, head = self._variants[place]
        self.facts |= {
            f"accuracy{suffix}": float(right[place].mean()),
            f"kind{suffix}": kind,
            f"head{suffix}": head,
        }
        return right[place]
