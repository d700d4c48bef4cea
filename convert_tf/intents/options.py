"""Parameters of intent classifiers: defaults, checks and flags, without importing scikit-learn."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from convert_tf.config.base import MODEL, OPTIMISATION, option
from convert_tf.intents.cross_validation import LEXICAL
from convert_tf.intents.decision import KINDS
from convert_tf.intents.encodings import ANY_KIND, KINDS_OF_ENCODING
from convert_tf.intents.examples import NAMES
from convert_tf.intents.head import HEADS, LOGISTIC_C

SEPARATORS = ("+", "|")
# How to score texts with untrained intents: every answer is wrong, or rejecting them is correct.
UNTRAINED = ("wrong", "out_of_scope")
_of_network = functools.partial(option, group=OPTIMISATION)


# Classifiers are compared and printed as in scikit-learn, so the dataclass must not define `__eq__`
# and `__repr__`.
@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class ClassifierOptions:
    """Parameters of both kinds of classifiers.

    Attributes:
      encoder: Encoder for the texts; see `IntentClassifier`.
      logistic_c: Logistic regression: scikit-learn's C, the inverse weight of the L2 penalty.
      lexical: auto combines the head with a word model, whose weight cross-validation chooses.
      threshold: Threshold to use instead of a fitted threshold.
      random_state: Seed of the weights, batches, dropout and folds.
      kind: Encodings to use.
    """

    heading: ClassVar[str] = MODEL

    encoder: Any = dataclasses.field(kw_only=False)
    logistic_c: float = option(LOGISTIC_C, group=OPTIMISATION, above=0, below=np.inf)
    lexical: str | None = option(LEXICAL[0], choices=[*LEXICAL, "none"])
    threshold: float | None = None
    random_state: int = 0
    kind: str = option("sentence", choices=[*KINDS_OF_ENCODING])


@dataclasses.dataclass(eq=False, repr=False)
class IntentOptions(ClassifierOptions):
    """Parameters of `IntentClassifier`.

    Attributes:
      head: Kind of classifier to train on the encodings.
      hidden_dim: Network: number of units in the hidden layer.
      dropout: Network: share of the encoding's values that are set to 0 in training.
      learning_rate: Network: learning rate of the first epoch; it falls linearly to 0.
      epochs: Network: maximum number of training epochs.
      batch_size: Network: number of examples per step, drawn with replacement.
      patience: Network: stop after this many epochs without better accuracy on validation examples,
        and keep the weights of the best epoch. 0: train for all epochs. The ConveRT paper uses 5.
      grid: Lists of values to try, by parameter name.
      out_of_scope: Answer --out_of_scope_label if the highest probability (confidence), the cosine
        to the nearest intent (distance) or a sum of the two (both) is below a threshold.
      rejected_share: Share of the in-scope texts that the thresholds of --out_of_scope reject.
        Default: 0.05, or the best share for the out-of-scope examples.
      min_margin: Also answer --out_of_scope_label if the lead of the highest probability over the
        second highest is smaller than this.
      upper_levels: For labels with levels, such as faq/opening_hours: if no intent is probable
        enough but an upper level (faq) is, answer with the upper level.
      out_of_scope_label: Label of texts that are out of scope.
      kind: Encodings to use: sentence (encode), reduced (encode_reduced), similarity
        (encode_similarity), or auto for the one with the best held-out accuracy.
      names: Use the names of the intents as examples. auto does so if the held-out accuracy rises.
    """

    encoder: Any
    head: str = option("logistic", choices=[*HEADS])
    _: dataclasses.KW_ONLY
    hidden_dim: int = _of_network(512, at_least=1)
    dropout: float = _of_network(0.75, at_least=0, below=1)
    learning_rate: float = _of_network(0.7, above=0, below=np.inf)
    epochs: int = _of_network(500, at_least=1)
    batch_size: int = _of_network(32, at_least=1)
    patience: int = _of_network(0, at_least=0)
    grid: Mapping[str, Sequence[Any]] | None = None
    out_of_scope: str | None = option(None, choices=[*KINDS, "none"])
    rejected_share: float | None = option(None, above=0, below=1)
    min_margin: float = option(0.0, at_least=0, below=1)
    upper_levels: bool = False
    out_of_scope_label: str | int | float | None = "oos"
    kind: str = option(ANY_KIND, choices=[ANY_KIND, *KINDS_OF_ENCODING])
    names: str | None = option(NAMES[0], choices=[*NAMES, "none"])


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class SeveralOptions(ClassifierOptions):
    """Parameters of `MultiIntentClassifier`.

    Attributes:
      label_separator: Character between two labels of the same text in files.
    """

    threshold: float | None = option(None, above=0, below=1)
    label_separator: str = SEPARATORS[0]
