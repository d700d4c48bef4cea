"""Find texts that are certainly not in English. Classifiers would give them random intents."""

import functools
from collections.abc import Sequence
from typing import Any

from convert_tf.extras import needs
from convert_tf.text.characters import fold

# A text counts as certainly not English if the probability of English is lower than this limit.
# It is lower than the limit for 0.05 % of short English texts, and for 86 % of requests in 26 other
# languages (docs/lab/intents.md). For texts without any letter that the model knows, it is 0.007.
_SURELY_OTHER = 0.001


def other_languages(texts: Sequence[str]) -> list[str | None]:
    """Return the languages of the texts that are certainly not in English.

    Reference: Lui and Baldwin, "langid.py: An off-the-shelf language identification tool", 2012.

    Args:
      texts: the texts. The language of short texts, names and numbers is hardly ever certain.

    Returns:
      For each text, the ISO 639-1 code of the most probable language, such as `"de"`, or None if
      the text may be in English.

    Raises:
      MissingLibraryError: if the extra `languages` is not installed.
    """
    identifier = _identifier()
    languages: list[str | None] = []
    for text in texts:
        probabilities = dict(identifier.rank(fold(text)))
        is_other = probabilities["en"] < _SURELY_OTHER
        languages.append(max(probabilities, key=probabilities.__getitem__) if is_other else None)
    return languages


@functools.cache
def _identifier() -> Any:
    """Load a model of 97 languages. Loading takes a second, and each text then takes 0.2 ms."""
    with needs("languages", "Detecting languages"):
        from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
