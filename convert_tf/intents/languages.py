"""Texts that are surely not in English. An English classifier would answer them with any intent."""

import functools
from collections.abc import Sequence
from typing import Any

from convert_tf.extras import needs

# Probability of English. Of short English requests 0.05 % have less, and of requests in 26 other
# languages 86 % (docs/lab). Texts without known letters have 0.007.
_SURELY_OTHER = 0.001


def other_languages(texts: Sequence[str]) -> list[str | None]:
    """Return the languages of the texts that are surely not in English.

    Reference: Lui and Baldwin, "langid.py: An off-the-shelf language identification tool", 2012.

    Args:
      texts: the texts. Short ones, names and numbers are hardly ever sure.

    Returns:
      The ISO 639-1 code of the most probable language, such as `"de"`, or None for each text that
      may be in English.

    Raises:
      MissingLibraryError: if the extra `languages` is not installed.
    """
    identifier = _identifier()
    languages: list[str | None] = []
    for text in texts:
        probabilities = dict(identifier.rank(text))
        is_other = probabilities["en"] < _SURELY_OTHER
        languages.append(max(probabilities, key=probabilities.__getitem__) if is_other else None)
    return languages


@functools.cache
def _identifier() -> Any:
    """Return the model of 97 languages, which takes a second to load and a fifth of a ms a text."""
    with needs("languages", "Telling languages"):
        from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
