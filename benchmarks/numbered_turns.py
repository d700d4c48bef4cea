"""Number the earlier turns in a file of contexts with candidates, as in the paper on ConveRT.

```
python benchmarks/numbered_turns.py --input valid_self_original.txt --output numbered.jsonl
```

The most recent earlier turn begins with `0: `, the turn before it with `1: `, and so on (arXiv
1911.03688 §3.1). The last turn and the candidates stay the same. The input is any file that
`convert-tf evaluate --candidates` reads, and so is the output.
"""

import json

from absl import app, flags

from convert_tf.data.candidates import read_candidates

_INPUT = flags.DEFINE_string("input", None, "File with contexts and candidates.", required=True)
_OUTPUT = flags.DEFINE_string("output", None, "File to write.", required=True)


def main(argv: list[str]) -> None:
    del argv
    examples = [*read_candidates(_INPUT.value)]
    with open(_OUTPUT.value, "w", encoding="utf-8") as file:
        for example in examples:
            earlier = [turn for turn in reversed(example.turns[:-1]) if turn]
            numbered = [f"{place}: {turn}" for place, turn in enumerate(earlier)]
            turns = [*reversed(numbered), *example.turns[-1:]]
            row = {"context": turns, "candidates": example.candidates, "label": example.labels}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
    print(f"{_OUTPUT.value}: {len(examples):,} contexts")


if __name__ == "__main__":
    app.run(main)
