"""Read the fields of objects in dumps. An unusable field is an `UnusableError`."""

from collections.abc import Mapping
from typing import Any

from convert_tf.storage.json_text import whole_characters

MAX_NAME_LENGTH = 200


class UnusableError(ValueError):
    """Error: a line or a part of it cannot be used; `reason` is the name of its counter.

    `is_bad` is true if something is missing or malformed, and false if a rule excludes the line.
    """

    def __init__(self, reason: str, *, is_bad: bool = True) -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_bad = is_bad


def text_field(fields: Mapping[str, Any], name: str) -> str:
    """Return a field that must be a text.

    Raises:
        UnusableError: `missing_` or `wrong_type_` and the name.
    """
    value = fields.get(name)
    if isinstance(value, str):
        return value
    raise UnusableError(f"missing_{name}" if value is None else f"wrong_type_{name}")


def name_field(fields: Mapping[str, Any], name: str, *, kinds: Any = str) -> str:
    """Return an optional short text, such as an author; empty if the field is missing or empty.

    Args:
        fields: the object.
        name: name of the field.
        kinds: allowed types; other values than texts are returned as texts.

    Raises:
        UnusableError: `wrong_type_` or `too_long_` and the name.
    """
    value = fields.get(name)
    if not value:
        return ""
    if isinstance(value, bool) or not isinstance(value, kinds):
        raise UnusableError(f"wrong_type_{name}")
    text = whole_characters(str(value))
    if len(text) > MAX_NAME_LENGTH:
        raise UnusableError(f"too_long_{name}")
    return text
