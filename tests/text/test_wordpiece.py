import json
import string
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from support.huggingface_folder import VOCABULARY

from convert_tf.text.tokenizer import WordPieceTokenizer, load_tokenizer
from convert_tf.text.vocabulary import VocabularyError

TEXTS = [
    "", " ", "Hello, embedding!", "the cats sat", "How are you?", "Ünïcödé Éa e\u0301",
    "don't stop-it 12 a.b", "ab中cd", "zero\u200bwidth\u00ad", "tab\tnew\nline\rnbsp\u00a0x",
    "\x00\ufffd\x07gone", "[MASK] [SEP]", "ΣΑΣ", "İi ıI", "a" * 100, "a" * 101, "b" * 300 + " c",
    "x~y$z=^`|<>", "“quoted”—dash…", "😀 ok", "ß ẞ ﬁ", "한국", "e\u0327\u0301",
]  # fmt: skip


def _plain_ids(text: str, vocabulary: list[str], *, lower: bool) -> list[int]:
    """BERT's published tokenizer in plain Python, letter by letter."""
    table = {entry: i for i, entry in enumerate(vocabulary)}
    cleaned = ""
    for c in text:
        if c in "\t\n\r" or unicodedata.category(c).startswith("Z"):
            cleaned += " "
        elif c != "\ufffd" and not unicodedata.category(c).startswith("C"):
            cleaned += f" {c} " if "\u4e00" <= c <= "\u9fff" else c
    if lower:
        cleaned = "".join(
            c for c in unicodedata.normalize("NFD", cleaned) if unicodedata.category(c) != "Mn"
        )
        cleaned = "".join(c.lower() for c in cleaned)
    words = []
    for word in cleaned.split():
        part = ""
        for c in word:
            if c in string.punctuation or unicodedata.category(c).startswith("P"):
                words += [part, c]
                part = ""
            else:
                part += c
        words.append(part)
    ids = []
    for word in filter(None, words):
        pieces, rest = [], word
        while rest and len(word) <= 100:
            marked = "##" if pieces else ""
            known = [n for n in range(len(rest), 0, -1) if marked + rest[:n] in table]
            if not known:
                break
            pieces.append(table[marked + rest[: known[0]]])
            rest = rest[known[0] :]
        ids += pieces if pieces and not rest else [table["[UNK]"]]
    return ids


def _write(folder: Path, entries=VOCABULARY, **settings) -> Path:
    path = folder / "vocab.txt"
    path.write_text("".join(f"{entry}\n" for entry in entries), encoding="utf-8")
    if settings:
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return path


@pytest.mark.parametrize("lower", [True, False])
def test_parity_with_plain_python(tmp_path, lower):
    tokenizer = load_tokenizer(_write(tmp_path, do_lower_case=lower))
    assert isinstance(tokenizer, WordPieceTokenizer)
    random = np.random.RandomState(0)
    alphabet = list("abcABC ÀéÕŞ.,!-'#[]中\u0301\u200d\t09Σσ")
    texts = TEXTS + ["".join(random.choice(alphabet, 12)) for _ in range(300)]
    found = tokenizer.token_ids(texts).to_list()
    for text, ids in zip(texts, found, strict=True):
        assert ids == _plain_ids(text, VOCABULARY, lower=lower), repr(text)


def test_golden(tmp_path):
    """Ids that the package tokenizers 0.23 gave for this vocabulary."""
    tokenizer = load_tokenizer(_write(tmp_path, do_lower_case=True))
    assert tokenizer.tokenize(["Hello embeddings!"]).to_list() == [
        [b"hello", b"em", b"##bed", b"##d", b"##ing", b"##s", b"!"]
    ]
    assert tokenizer.token_ids(["Hello, embedding!", "How are YOU? ☃"]).to_list() == [
        [77, 45, 79, 80, 51, 78, 42],
        [81, 82, 83, 43, 2],
    ]


def test_interface(tmp_path):
    tokenizer = load_tokenizer(_write(tmp_path), num_oov_buckets=7)
    size = len(VOCABULARY)
    assert (tokenizer.name, tokenizer.vocab_size, tokenizer.num_oov_buckets) == (
        "wordpiece",
        size,
        0,
    )
    assert tokenizer.num_ids == tokenizer.padding_id == size
    ids = tokenizer.token_ids(["the cats", ""])
    assert ids.dtype == "int32"
    tokens = tokenizer.tokenize(["the cats", ""]).to_list()
    assert [[VOCABULARY[i].encode() for i in row] for row in ids.to_list()] == tokens


@pytest.mark.parametrize(
    ("entries", "settings", "text", "tokens"),
    [
        ([], {}, "Hello", ["hello"]),
        (["Hello"], {}, "Hello", ["Hello"]),  # an entry with a capital letter: a cased model
        (["Hello"], {"do_lower_case": True}, "Hello", ["hello"]),
        (["é"], {}, "é", ["e"]),
        (["é"], {"strip_accents": False}, "é", ["é"]),
        (["é"], {"strip_accents": True, "do_lower_case": False}, "é", ["e"]),
        ([], {}, "a中", ["a", "中"]),
        ([], {"tokenize_chinese_chars": False}, "a中", ["[UNK]"]),
    ],
)
def test_settings_are_stated_or_read_off_the_vocabulary(tmp_path, entries, settings, text, tokens):
    tokenizer = load_tokenizer(_write(tmp_path, [*VOCABULARY, *entries], **settings))
    (found,) = tokenizer.tokenize([text]).to_list()
    assert [token.decode() for token in found] == tokens


def test_a_mark_and_line_ends_of_windows(tmp_path):
    expected = load_tokenizer(_write(tmp_path)).token_ids(TEXTS).to_list()
    path = tmp_path / "vocab.txt"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert load_tokenizer(path).token_ids(TEXTS).to_list() == expected


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[PAD]\na\n", r"has no \[UNK\]"),
        (b"[PAD]\n[UNK]\na\na\n", "'a' twice"),
        (b"[PAD]\n[UNK]\n\xff\n", "UTF-8 text"),
    ],
)
def test_bad_vocabularies_are_named(tmp_path, content, message):
    (tmp_path / "vocab.txt").write_bytes(content)
    with pytest.raises(VocabularyError, match=message):
        load_tokenizer(tmp_path / "vocab.txt")


def test_bad_settings_are_named(tmp_path):
    path = _write(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("{")
    with pytest.raises(VocabularyError, match=r"tokenizer_config\.json is damaged"):
        load_tokenizer(path)
