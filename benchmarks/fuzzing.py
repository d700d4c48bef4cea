"""Generate random texts and damaged files, and check how encoders and readers handle them."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from convert_tf.storage.checksums import CHECKSUMS_FILE, record_checksums
from convert_tf.text import runs
from convert_tf.text.plain_tokenizer import PlainTokenizer, restored_texts

# Tolerance relative to the length of an encoding. Rounding depends on the shape of a batch.
_CLOSE = {"module": 2e-3, "onnx": 1e-2}


def fuzzed_texts(rng: random.Random) -> Iterator[str]:
    """Yield random texts without end."""
    words = [
        "refund",
        "ﬁne",
        "İstanbul",
        "ΣΑΣ",
        "e\u0301",
        "👩‍👩‍👧",
        "\u202eabc",
        "﹏",
        "﹏x",
        "\0",
    ]
    words += ["12345678", "a" * 300, "\u200b", "\ufeff", "！？", "ß", "ǆ", "한국어", "\r\n", "\t "]
    kinds: list[Callable[[], str]] = [
        lambda: chr(rng.randrange(0x110000)),
        lambda: chr(rng.randrange(0x3000)),
        lambda: rng.choice(words),
        lambda: rng.choice(words) * rng.randrange(1, 40),
        lambda: " " * rng.randrange(1, 5),
    ]
    while True:
        text = "".join(rng.choice(kinds)() for _ in range(rng.choice((0, 1, 3, 10, 60))))
        yield "".join(c for c in text if not 0xD800 <= ord(c) < 0xE000)  # no surrogates


def fuzz_texts(
    encoders: dict[str, Any], tokenizer: Any, plain: PlainTokenizer, texts: list[str],
    rng: random.Random,
) -> list[str]:  # fmt: skip
    """Encode and tokenize texts, and as many random byte strings; return the faults.

    Args:
      encoders: encoders by name, `"module"` or `"onnx"`.
      tokenizer: tokenizer with TensorFlow.
      plain: tokenizer without TensorFlow and with the same vocabulary.
      texts: the texts.
      rng: draws the byte strings.
    """
    lowered = runs.lower(texts).numpy()
    tokens = tokenizer.tokenize(texts).to_list()
    faults = [
        f"the tokens of {text[:80]!r} spell another text"
        for text, own, lower in zip(texts, tokens, lowered, strict=True)
        if restored_texts(b"".join(own).decode())[0].replace("\0", "\ufffd") != lower.decode()
    ]
    strings = [rng.randbytes(rng.choice((1, 4, 30))) for _ in texts]
    ids = tokenizer.token_ids([*map(str.encode, texts), *strings])
    own_ids, own_splits = plain.flat_ids([*texts, *strings])
    if not (
        np.array_equal(ids.flat_values.numpy(), own_ids)
        and np.array_equal(ids.row_splits.numpy(), own_splits)
    ):
        faults.append(f"the tokenizers differ on one of {texts[0][:80]!r} … {strings[0]!r} …")
    for name, encoder in encoders.items():
        for some in (texts, strings):
            encodings = encoder.encode(some)
            if not np.isfinite(encodings).all():
                wrong = np.flatnonzero(~np.isfinite(encodings).all(axis=1))
                faults.append(f"{name}: no finite encoding of {some[wrong[0]][:80]!r}")
            alone = rng.randrange(len(some))
            distance = np.abs(encoder.encode([some[alone]])[0] - encodings[alone]).max()
            if distance > _CLOSE[name] * np.linalg.norm(encodings[alone]):
                faults.append(
                    f"{name}: {some[alone][:80]!r} differs by {distance} when encoded alone"
                )
    return faults


def damaged(content: bytes, rng: random.Random) -> bytes | None:
    """Return content with bytes flipped, cut or added, other content, or None for no file."""
    changed = bytearray(content)
    kind = rng.randrange(5)
    if kind == 0 and changed:
        for _ in range(rng.choice((1, 5, 100))):
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    elif kind == 1:
        del changed[rng.randrange(len(changed) + 1) :]
    elif kind == 2:
        place = rng.randrange(len(changed) + 1)
        changed[place:place] = rng.choice((b"\0", b"\xff" * 9, b"[]"))
    elif kind == 3:
        changed = bytearray(
            rng.choice((b"", b"null", b"{}", b"[1]", b"\0" * 100, b"[" * 100_000,
                        b'{"a": ' * 100_000))
        )  # fmt: skip
    else:
        return None
    return bytes(changed)


def fuzz_file(path: Path, read: Callable[[], Any], expected: Any, rng: random.Random) -> str:
    """Damage one file of a target, read the target, and restore the file.

    Args:
      path: file or folder of the target.
      read: reads the target as an array.
      expected: what `read` returns for the undamaged target.
      rng: draws the file and the damage.

    Returns:
      The outcome; it begins with `"FAULT"` if a rule was broken.
    """
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    parts = {p: p.relative_to(path).parts for p in files}
    file = rng.choice([p for p in files if not {"checkpoints", "logs"} & {*parts[p]}])
    content, sums = file.read_bytes(), path / CHECKSUMS_FILE
    recorded = sums.read_bytes() if sums.is_file() else None
    # TensorFlow and HDF5 may crash on damaged files, so checksums always protect these.
    is_native = file.suffix in (".pb", ".h5") or "variables" in parts[file]
    is_unchecked = recorded is None or (not is_native and rng.random() < 0.5)
    try:
        changed = damaged(content, rng)
        if changed is None:
            file.unlink()
        else:
            file.write_bytes(changed)
        if recorded is not None and is_unchecked and file != sums:
            if changed is None or rng.random() < 0.5:
                sums.unlink()
            else:
                record_checksums(path, [str(file.relative_to(path))])
        try:
            found = read()
        except (ValueError, OSError) as error:
            said = str(error)
            is_short = len(said) < 1_000 and "\n" not in said and "Traceback" not in said
            return "refused" if is_short else f"FAULT {file.name}: said {said[:200]!r}"
        except Exception as error:  # any other exception is a fault
            return f"FAULT {file.name}: {type(error).__name__}: {str(error)[:200]}"
        if np.array_equal(found, expected):
            return "read as before"
        is_known = is_unchecked and path.suffix != ".onnx"
        return "read, unchecked" if is_known else f"FAULT {file.name}: read as something else"
    finally:
        file.write_bytes(content)
        if recorded is not None:
            sums.write_bytes(recorded)
