"""Write many sentences from a few dumps, to time vocabulary learning at scale.

```
python benchmarks/sentences.py --input 'dumps/RC_*.zst' --output sentences.txt --count 10000000
convert-tf vocabulary --input sentences.txt --output vocab.txt
```

The bodies of the comments, cut at 127 characters, are written over and over until there are enough;
from the second time on two words are run together in every seventh, so that new words keep coming
as they would from new comments.
"""

import random

from absl import app, flags

from convert_tf.corpora.dumps import CountedFile, find_files, read_objects

_INPUT = flags.DEFINE_multi_string("input", None, "Comment dumps.", required=True)
_OUTPUT = flags.DEFINE_string("output", None, "Text file, a sentence a line.", required=True)
_COUNT = flags.DEFINE_integer("count", 10_000_000, "Sentences.")

MAX_LENGTH, MIN_LENGTH = 127, 9
NEW_WORD_EVERY = 7


def main(argv: list[str]) -> None:
    del argv
    bodies = []
    for path in find_files(_INPUT.value):
        for fields in read_objects(CountedFile(path)):
            body = " ".join(str(fields.get("body", "")).split())[:MAX_LENGTH]
            if len(body) >= MIN_LENGTH:
                bodies.append(body)
    rng = random.Random(0)
    with open(_OUTPUT.value, "w", encoding="utf-8") as file:
        for number in range(_COUNT.value):
            sentence = bodies[number % len(bodies)]
            if number >= len(bodies) and number % NEW_WORD_EVERY == 0:
                words = sentence.split()
                words[rng.randrange(len(words))] += rng.choice(words)
                sentence = " ".join(words)
            file.write(sentence + "\n")
    print(f"wrote {_OUTPUT.value}: {_COUNT.value:,} sentences from {len(bodies):,} comments")


if __name__ == "__main__":
    app.run(main)
