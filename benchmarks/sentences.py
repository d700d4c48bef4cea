"""Write many sentences from a few dumps, to measure vocabulary learning at scale.

```
python benchmarks/sentences.py --input 'dumps/RC_*.zst' --output sentences.txt --count 10000000
convert-tf vocabulary --input sentences.txt --output vocab.txt
```

The sentences are the bodies of the comments, cut at 127 characters. They are repeated until there
are enough. From the second pass on, two words are joined in every seventh sentence. This adds new
words, as new comments would.
"""

import random

from absl import app, flags

from convert_tf.corpora.dumps import CountedFile, find_files, read_objects

_INPUT = flags.DEFINE_multi_string("input", None, "Dumps of comments.", required=True)
_OUTPUT = flags.DEFINE_string(
    "output", None, "Text file to write, one sentence per line.", required=True
)
_COUNT = flags.DEFINE_integer("count", 10_000_000, "Number of sentences.")

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
