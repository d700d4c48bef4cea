"""The intents of the lines of a file, as a JSON object a line.

```
convert-tf intent predict --model model/ --input texts.txt
echo "where is my card?" | convert-tf intent predict --model model/ --top_k 3
```

An object has `text`, `intent` (out of scope `oos`, or what the model calls it), `confidence`, and
`intents` where `--top_k` is more than 1. An empty line has the intent null.
"""

import json
import sys
from itertools import islice
from typing import Any

from convert_tf.cli.flags import Define, define_model, loaded_classifier
from convert_tf.storage.lines import TextLines

_LINES_AT_ONCE = 256


def define_flags(define: Define) -> None:
    define_model(define)
    define("input", "-", "Text file, a text a line; - for standard input.")
    define("top_k", 1, "Intents listed with probabilities.", lower_bound=1)


def run(values: Any) -> None:
    from convert_tf.intents.answers import answers

    classifier = loaded_classifier(values)
    lines = TextLines(values.input)
    size = 1 if lines.is_typed else _LINES_AT_ONCE  # someone who types waits for an answer
    remaining = iter(lines)
    while texts := list(islice(remaining, size)):
        for answer in answers(classifier, texts):
            print(_line(answer.described(values.top_k)))
        sys.stdout.flush()


def _line(described: dict[str, Any]) -> str:
    """JSON in the characters of its texts, or in ASCII where the output cannot hold these."""
    line = json.dumps(described, ensure_ascii=False)
    try:
        line.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return json.dumps(described)
    return line
