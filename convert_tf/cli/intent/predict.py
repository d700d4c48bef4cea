"""Predict the intent of each text of a file, and print one JSON object per line.

```
convert-tf intent predict --model model/ --input texts.txt
echo "where is my card?" | convert-tf intent predict --model model/ --top_k 3
```

Each object has `text`, `intent` and `confidence`, the calibrated probability. The intent is `oos`
for texts that are out of scope, and null for empty lines. `--top_k` adds `intents`, the most
probable intents with their probabilities. `--explain` adds `explanation`: the margin to the second
intent, the most important words among the first 100, and the nearest examples. With
`--english_only`, a text that is certainly not in English gets `language` instead of an intent.

Flags:
  input: Text file with one text per line, or a table with a column of texts; - for standard input.
  top_k: Number of intents to print with their probabilities.
  explain: Explain each answer: the margin, the most important words and the nearest examples.
  english_only: For texts in other languages, print the language instead of an intent. Needs the
    extra languages.
"""

import json
import sys
from itertools import islice
from typing import Any

from convert_tf.cli.flags import Define, define_model, loaded_classifier
from convert_tf.readers.texts import Texts

_LINES_AT_ONCE = 256


def define_flags(define: Define) -> None:
    define_model(define)
    define("input", "-")
    define("top_k", 1, lower_bound=1)
    define("explain", False)
    define("english_only", False)


def run(values: Any) -> None:
    from convert_tf.intents.predictor import answer_texts

    classifier = loaded_classifier(values)
    texts = Texts(values.input)
    # Somebody who types texts expects an answer after each line.
    size = 1 if texts.is_typed else _LINES_AT_ONCE
    remaining = iter(texts)
    while some := list(islice(remaining, size)):
        for answer in answer_texts(
            classifier, some, explains=values.explain, english_only=values.english_only
        ):
            print(_line(answer.described(values.top_k)))
        sys.stdout.flush()


def _line(described: dict[str, Any]) -> str:
    """Return a line of JSON, in ASCII if standard output cannot encode its characters."""
    line = json.dumps(described, ensure_ascii=False)
    try:
        line.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return json.dumps(described)
    return line
