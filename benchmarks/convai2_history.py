"""Keep a part of the history in a ConvAI2 file: the persona lines or the earlier turns.

```
python benchmarks/convai2_history.py --input valid_self_original.txt --keep persona \\
    --output persona.txt
python benchmarks/convai2_history.py --input valid_self_original.txt --keep turns --output turns.txt
```

With `--keep turns`, the persona lines are left out. With `--keep persona`, each turn becomes a
dialogue of its own that begins with the persona lines, so no turn has earlier turns in its history.
The candidates stay the same. The input may be compressed.
"""

from collections.abc import Iterable, Iterator

from absl import app, flags

from convert_tf.readers.files import TableFile, decoded_lines
from convert_tf.storage.lines import open_decompressed

_INPUT = flags.DEFINE_string("input", None, "ConvAI2 file.", required=True)
_KEEP = flags.DEFINE_enum("keep", None, ["persona", "turns"], "Part to keep.", required=True)
_OUTPUT = flags.DEFINE_string("output", None, "File to write.", required=True)


def _dialogues(lines: Iterable[str]) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the persona lines and the turns of each dialogue, without line numbers."""
    persona: list[str] = []
    turns: list[str] = []
    for line in lines:
        number, _, text = line.partition(" ")
        if number == "1" and persona + turns:
            yield persona, turns
            persona, turns = [], []
        is_persona = "\t" not in text and "persona:" in text
        (persona if is_persona else turns).append(text)
    yield persona, turns


def main(argv: list[str]) -> None:
    del argv
    source = TableFile(_INPUT.value)
    with open_decompressed(source) as stream:
        dialogues = [*_dialogues(decoded_lines(stream, source))]
    with open(_OUTPUT.value, "w", encoding="utf-8") as file:
        for persona, turns in dialogues:
            parts = [turns] if _KEEP.value == "turns" else [[*persona, turn] for turn in turns]
            for part in parts:
                file.writelines(f"{number} {text}\n" for number, text in enumerate(part, start=1))
    print(f"{_OUTPUT.value}: {sum(len(turns) for _, turns in dialogues):,} turns")


if __name__ == "__main__":
    app.run(main)
