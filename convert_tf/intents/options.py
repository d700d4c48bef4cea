"""Parameters of classifiers: their defaults, checks and flags, without scikit-learn."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from convert_tf.config.base import MODEL, OPTIMISATION, option
from convert_tf.intents.encodings import ANY_KIND, KINDS_OF_ENCODING
from convert_tf.intents.examples import NAMES
from convert_tf.intents.head import HEADS, LOGISTIC_C
from convert_tf.intents.heldout import KINDS, LEXICAL

SEPARATORS = ("+", "|")
_of_network = functools.partial(option, group=OPTIMISATION)


# The classifiers compare and print as scikit-learn's do, so these do not define it.
@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class ClassifierOptions:
    """Parameters of both kinds of classifiers. A field made by `option` is checked, and a flag."""

    heading: ClassVar[str] = MODEL

    encoder: Any = dataclasses.field(kw_only=False)
    logistic_c: float = option(
        LOGISTIC_C,
        "Logistic regression: scikit-learn's C, the inverse weight of the L2 penalty.",
        group=OPTIMISATION,
        above=0,
        below=np.inf,
    )
    lexical: str | None = option(
        LEXICAL[0],
        "auto combines the head with a model of words, weighted by cross-validation.",
        choices=[*LEXICAL, "none"],
    )
    threshold: float | None = option(None, "Threshold to use instead of a fitted one.")
    random_state: int = 0
    kind: str = option("sentence", "Encodings to use.", choices=[*KINDS_OF_ENCODING])


@dataclasses.dataclass(eq=False, repr=False)
class IntentOptions(ClassifierOptions):
    """Parameters of `IntentClassifier`."""

    encoder: Any
    head: str = option("network", "Kind of classifier to train on the encodings.", choices=[*HEADS])
    _: dataclasses.KW_ONLY
    hidden_dim: int = _of_network(512, "Network: units of the hidden layer.", at_least=1)
    dropout: float = _of_network(
        0.75, "Network: share of the encoding that is set to 0 in training.", at_least=0, below=1
    )
    learning_rate: float = _of_network(
        0.7, "Network: rate of the first epoch; it falls linearly to 0.", above=0, below=np.inf
    )
    epochs: int = _of_network(500, "Network: epochs of training, at most.", at_least=1)
    batch_size: int = _of_network(
        32, "Network: examples of a step, drawn with replacement.", at_least=1
    )
    grid: Mapping[str, Sequence[Any]] | None = None
    out_of_scope: str | None = option(
        None,
        "Answer --out_of_scope_label if the highest probability (confidence) or the cosine "
        "to the nearest intent (distance) is below a threshold.",
        choices=[*KINDS, "none"],
    )
    min_margin: float = option(
        0.0,
        "Also answer --out_of_scope_label if the highest probability leads the second one by less.",
        at_least=0,
        below=1,
    )
    upper_levels: bool = option(
        False,
        "For labels with levels such as faq/opening_hours: if no intent is sure enough but "
        "its upper level is, answer the upper level.",
    )
    out_of_scope_label: str | int | float | None = option(
        "oos", "Label of texts that are out of scope."
    )
    kind: str = option(
        ANY_KIND,
        "Encodings to use: sentence (encode), similarity (encode_similarity), or auto "
        "for the one with the better held-out accuracy.",
        choices=[ANY_KIND, *KINDS_OF_ENCODING],
    )
    names: str | None = option(
        NAMES[0],
        "Use the names of the intents as examples. auto does so if the held-out accuracy rises.",
        choices=[*NAMES, "none"],
    )


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class SeveralOptions(ClassifierOptions):
    """Parameters of `MultiIntentClassifier`."""

    threshold: float | None = option(
        None, "Threshold to use instead of a fitted one.", above=0, below=1
    )
    label_separator: str = SEPARATORS[0]
