"""Read Rasa training data (`nlu.yml`) as Rasa 3.6 does.

Lines that Rasa would ignore raise an error. `tests/clients/real/nlu_probe.py` compares this reader
with Rasa's own.
"""

import re
from collections.abc import Iterator
from typing import Any

import yaml
from yaml.constructor import ConstructorError
from yaml.scanner import ScannerError

from convert_tf.storage.json_text import joined_halves, parsed_json, whole_characters
from convert_tf.storage.messages import listed, shortened

# The keys that a block may have, by the key that determines the kind of the block.
_BLOCKS = {name: {name, "examples"} for name in ("intent", "synonym", "regex", "lookup")}
_BLOCKS["intent"].add("metadata")
_LAST_VERSION = (3, 1)
_MAX_TEXT = 40  # maximum number of characters of a line in a message
_TAG = "tag:yaml.org,2002:"
# Plain scalars that ruamel.yaml, Rasa's YAML 1.2 parser, does not read as strings.
_NO_STRING = re.compile(
    r"""^(?: ~|null|Null|NULL| |true|True|TRUE|false|False|FALSE|=
    |[-+]?(?:[0-9][0-9_]*)\.[0-9_]*(?:[eE][-+]?[0-9]+)?
    |[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+
    |[-+]?\.[0-9_]+(?:[eE][-+][0-9]+)?
    |[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)
    |[-+]?0b[01_]+|[-+]?0o?[0-7_]+|(?!_)[-+]?[0-9_]+|[-+]?0x[0-9a-fA-F_]+
    |[0-9]{4}-[0-9]{2}-[0-9]{2}
    |[0-9]{4}-[0-9][0-9]?-[0-9][0-9]?(?:[Tt]|[ \t]+)[0-9][0-9]?:[0-9]{2}:[0-9]{2}(?:\.[0-9]*)?
     (?:[ \t]*(?:Z|[-+][0-9][0-9]?(?::[0-9]{2})?))?
    )$""",
    re.X,
)
# Entity marks: [text](entity), [text](entity:value), [text]{"entity": …} and [text][{…}, {…}].
_MARK = re.compile(
    r"\[(?P<text>[^\]]+?)\]"
    r"(\((?P<entity>[^:)]+?)(?::[^)]+)?\)|\{(?P<one>[^}]+?)\}|\[(?P<several>.*?)\])"
)
_MARK_VALUES = {"entity": (str,), "role": (str,), "group": (str,), "value": (str, int, float)}


class _Loader(yaml.SafeLoader):
    """Reads YAML 1.2 in the same way as Rasa's parser, and records the line of each node."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 (PyYAML copies it)

    def flatten_mapping(self, node: Any) -> None:
        """Merge mappings (`<<`), keeping each key once, and reject mappings with repeated keys."""
        seen: set[str] = set()
        for key, _ in node.value:
            if (name := str(key.value)) in seen:
                raise ConstructorError(None, None, f"{name!r} is repeated", key.start_mark)
            seen.add(name)
        super().flatten_mapping(node)
        # If keys were not merged here, nested merges would grow exponentially. The mapping's own
        # keys come last and therefore take precedence.
        node.value = [*{str(key.value): (key, value) for key, value in node.value}.values()]

    def scan_block_scalar_indentation(self) -> Any:
        """Reject a tab after the indentation of the first line, as Rasa's parser does."""
        indentation = super().scan_block_scalar_indentation()
        if self.peek() == "\t":
            problem = "a tab where an indentation space is expected"
            raise ScannerError(None, None, problem, self.get_mark())
        return indentation

    def scan_flow_scalar(self, style: str) -> Any:
        r"""Join escapes such as `\ud83d\ude00` into one character, and replace lone surrogates."""
        token = super().scan_flow_scalar(style)
        token.value = whole_characters(joined_halves(token.value))
        return token

    def scan_directive(self) -> Any:
        """Reject unknown directives, which PyYAML ignores."""
        token = super().scan_directive()
        if token.name not in ("YAML", "TAG"):
            raise ScannerError(None, None, f"unknown directive {token.name}", token.start_mark)
        return token


_Loader.add_implicit_resolver(_TAG + "merge", re.compile("^<<$"), ["<"])
_Loader.add_implicit_resolver(_TAG + "null", _NO_STRING, None)
for _name in ("bool", "int", "float", "timestamp"):  # read as strings; never used
    _Loader.add_constructor(_TAG + _name, _Loader.construct_yaml_str)


def read_nlu(content: str, path: str) -> list[tuple[int, str, str]]:
    """Read the examples of intents. Synonyms, regular expressions and lookup tables are skipped.

    Args:
      content: the content of the file.
      path: the name of the file, for messages.

    Returns:
      A tuple (line, text, intent) for each example. Entity marks are replaced by the text that they
      mark. An intent may have a response key (`faq/ask_name`).

    Raises:
      ValueError: if the file is not Rasa training data, or Rasa would ignore a line.
    """
    fields = _fields(_root(_unescaped(content, path), path))
    blocks = fields.get("nlu")
    if not isinstance(blocks, yaml.SequenceNode):
        raise ValueError(
            f"{path!r} has no `nlu` list of intents. Pass a Rasa training data file, in which "
            "`nlu` lists intents and their `examples`, or a CSV file."
        )
    document = _Document()
    document.check_version(fields.get("version"))
    for block in blocks.value:
        document.read_block(block)
    if document.faults:
        faults = [f"line {line}: {reason}" for line, reason in sorted(document.faults)]
        raise ValueError(
            f"{path!r} has lines that Rasa would ignore: {listed(faults, separator='; ')}. Repair "
            "or remove them."
        )
    return document.rows


def _unescaped(content: str, path: str) -> str:
    r"""Replace escapes such as `\u00e9`, which Rasa reads anywhere in an ASCII file."""
    if "\x85" in content:  # a line break in YAML 1.1, but not in YAML 1.2
        line = content[: content.index("\x85")].count("\n") + 1
        raise _no_yaml(path, f", line {line}: the character 0x0085")
    if not content.isascii():
        return content
    try:
        decoded = content.encode().decode("raw_unicode_escape")
        return decoded.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError as error:
        raise ValueError(
            rf"{path!r} has \u without the four digits of a character ({error.reason}). Write the "
            "character itself."
        ) from error


def _root(content: str, path: str) -> Any:
    try:
        loader = _Loader(content)
        root = loader.get_single_node()
        if root is not None:
            # This raises an error for unknown tags, and for mappings as keys.
            loader.construct_document(root)
        return root
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = "" if mark is None else f", line {mark.line + 1}"
        reason = " ".join(filter(None, (error.context, error.problem)))
        raise _no_yaml(path, f"{where}: {reason}") from error
    except yaml.reader.ReaderError as error:
        line = content.count("\n", 0, error.position) + 1
        raise _no_yaml(path, f", line {line}: the character {error.character:#06x}") from error
    except RecursionError as error:
        raise _no_yaml(path, ": it is nested too deeply") from error
    except (ValueError, OverflowError) as error:  # from chr() and int() in PyYAML
        reason = "the number of a character or version is out of range"
        raise _no_yaml(path, f", line {loader.line + 1}: {reason}") from error


def _no_yaml(path: str, reason: str) -> ValueError:
    return ValueError(f"{path!r} is not valid YAML{reason}. Repair it.")


class _Document:
    """The examples in a file, and the faults that were recorded while reading it."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, str, str]] = []
        self.faults: set[tuple[int, str]] = set()

    def check_version(self, node: Any) -> None:
        """Record a fault if the version is too new for Rasa 3.6, which reads only its numbers."""
        if node is None or _is_null(node):
            return
        if not _is_string(node):
            self._fault(node, "the version is not a string; put it in quotes")
            return
        match = re.fullmatch(r"v?(\d+(?:\.\d+)*?)(?:\.0+)*", node.value.strip("\"' \t\n"))
        if match and _is_later(match[1]):
            self._fault(node, f"version {shortened(node.value, _MAX_TEXT)} is later than 3.1")

    def read_block(self, block: Any) -> None:
        fields = _fields(block)
        kind = next((name for name in _BLOCKS if name in fields), None)
        if not isinstance(block, yaml.MappingNode):
            self._fault(block, "the entry is not an intent with examples")
        elif kind is None or not fields.keys() <= _BLOCKS[kind]:
            unknown = sorted(fields.keys() - (_BLOCKS[kind] if kind else set()))
            keys = ", ".join(map(repr, unknown)) or "nothing"
            self._fault(block, f"{keys} instead of {', '.join(_BLOCKS)} or examples")
        elif kind == "intent":
            self._read_intent(fields["intent"], fields.get("examples"), block)

    def _read_intent(self, intent: Any, examples: Any, block: Any) -> None:
        name = self._string(intent, "intent").strip()
        if not name:
            return
        if name.count("/") > 1:
            self._fault(intent, f"intent {name!r} has more than one response key")
        before = len(self.rows) + len(self.faults)
        if isinstance(examples, yaml.SequenceNode):
            for example in examples.value:
                self._read_example(example, name)
        elif _is_string(examples):
            self._read_lines(examples, name)
        elif examples is not None and not _is_null(examples):
            self._fault(examples, f"the examples of {name!r} are not lines that begin with '-'")
        if len(self.rows) + len(self.faults) == before:
            self._fault(block, f"{name!r} has no examples")

    def _read_lines(self, examples: Any, intent: str) -> None:
        first = examples.start_mark.line + 1
        is_literal = examples.style == "|"  # the other styles join lines
        passed = 0
        for line in examples.value.splitlines(keepends=True):
            number = first + (1 + passed if is_literal else 0)
            passed += line.count("\n")
            text = "".join(line.splitlines())  # without the line break
            if text.startswith("-"):
                self._add(number, text[1:].strip("\n\r "), intent)
            elif line.strip():
                self.faults.add((number, f"{shortened(line, _MAX_TEXT)!r} does not begin with '-'"))

    def _read_example(self, example: Any, intent: str) -> None:
        fields = _fields(example)
        if "text" not in fields or fields.keys() - {"text", "metadata"}:
            self._fault(example, "an example in a list must have a `text` and optional `metadata`")
        elif text := self._string(fields["text"], "text"):
            self._add(fields["text"].start_mark.line + 1, text.strip("\n\r "), intent)

    def _add(self, line: int, text: str, intent: str) -> None:
        plain, stop = "", 0
        for mark in _marks(text):
            several = mark["several"] or ""
            inside = re.findall(r"\{([^}]+?)\}", several[: several.rfind("}") + 1])
            if not all(map(_is_mark, [mark["one"]] if mark["one"] else inside)):
                reason = 'is not a mark such as [text]{"entity": "name"}'
                self.faults.add((line, f"{shortened(mark[0], _MAX_TEXT)!r} {reason}"))
            plain += text[stop : mark.start()] + mark["text"]
            stop = mark.end()
        plain += text[stop:]
        if not plain.strip():
            self.faults.add((line, "an example has no text"))
        self.rows.append((line, plain, intent))

    def _string(self, node: Any, name: str) -> str:
        """Return the value of a node. If it is not a string, record a fault and return `""`."""
        value = node.value if isinstance(node, yaml.ScalarNode) else ""
        if _is_string(node) and value.strip():
            return str(value)
        what = f"{name} {value} is not a string in YAML; put it in quotes"
        self._fault(node, what if value.strip() else f"{name} is not a string")
        return ""

    def _fault(self, node: Any, reason: str) -> None:
        self.faults.add((node.start_mark.line + 1, reason))


def _fields(node: Any) -> dict[str, Any]:
    """Return the values in a mapping node by key; an empty dict for other nodes."""
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    return {key.value: value for key, value in pairs}


def _marks(text: str) -> Iterator[re.Match[str]]:
    """Yield the matches of `_MARK.finditer` in linear time.

    A closing bracket ends every mark that starts at an opening bracket before it. If no mark starts
    at the first of these opening brackets, no mark starts at the others.
    """
    closings = {"(": ")", "{": "}", "[": "]"}
    following: dict[str, int] = {}

    def next_place(character: str, start: int) -> int:
        if following.get(character, -1) < start:
            index = text.find(character, start)
            following[character] = len(text) if index < 0 else index
        return following[character]

    place = 0
    while (start := text.find("[", place)) >= 0 and (end := text.find("]", start)) >= 0:
        place = end + 1
        closing = closings.get(text[place : place + 1])
        if closing is None or (stop := next_place(closing, place + 1)) == len(text):
            continue
        if closing == ")" and next_place(":", place + 1) == stop - 1:  # a colon and no value
            continue
        if mark := _MARK.match(text, start):
            yield mark
            place = mark.end()


def _is_later(version: str) -> bool:
    try:
        return tuple(map(int, version.split("."))) > _LAST_VERSION
    except ValueError:  # Python reads no number of more than 4,300 digits
        return True


def _is_string(node: Any) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == _TAG + "str"


def _is_null(node: Any) -> bool:
    return node.tag == _TAG + "null" and node.value in ("", "~", "null", "Null", "NULL")


def _is_mark(values: str) -> bool:
    try:
        mark = parsed_json(f"{{{values}}}")
    except ValueError:
        return False
    return "entity" in mark and all(
        isinstance(mark.get(name, ""), kinds) and not isinstance(mark.get(name), bool)
        for name, kinds in _MARK_VALUES.items()
    )
