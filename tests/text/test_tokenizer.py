"""Tokenizers in a graph: comparison with a greedy loop, inversion, and new processes."""

import functools
import json
import random
import string
import time
import unicodedata
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from support.huggingface_folder import VOCABULARY
from support.processes import printed_by

from convert_tf.encoding.text_batches import text_bytes
from convert_tf.text import runs
from convert_tf.text.plain_tokenizer import PlainTokenizer, restored_texts
from convert_tf.text.subwords import WORD_START
from convert_tf.text.tokenizer import SentencePieceTokenizer, WordPieceTokenizer, load_tokenizer
from convert_tf.text.vocabulary import VocabularyError, read_vocabulary, write_vocabulary

ALPHABET = "abcdehlorwt019 .,!'\n\\é"
SUBWORDS = [
    "﹏the", "﹏hello", "﹏world", "﹏wor", "he", "llo", "ld", "﹏, ", "﹏10", "﹏  ", "..", "\n\n",
]  # fmt: skip
UNKNOWN = "x\U00012000\U0001f600\ufe4e\ufe4f\0\u3000ÿ"


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    alphabet = [start + character for character in ALPHABET for start in ("", WORD_START)]
    write_vocabulary(path, SUBWORDS + alphabet)
    return path


@pytest.fixture(scope="module")
def tokenizer(vocabulary):
    return load_tokenizer(vocabulary)


def naive_tokens(run, subwords):
    """Split a run at the longest known prefixes.

    An unknown character is a token. A lone marker is joined with what follows it.
    """
    tokens = []
    longest = max(map(len, subwords))
    while run:
        for end in range(min(len(run), longest), 0, -1):
            if run[:end] in subwords:
                break
        else:
            end = 2 if run[0] == WORD_START else 1
        tokens.append(run[:end])
        run = run[end:]
    return tokens


@functools.cache
def naive_bucket(character):
    return int(tf.strings.to_hash_bucket_fast([character], 1000)[0])


def check_against_naive(tokenizer, subwords, texts):
    ids = {subword: index for index, subword in enumerate(subwords)}
    rows = runs.split_runs(tf.constant(texts)).to_list()
    tokens = tokenizer.tokenize(tf.constant(texts)).to_list()
    found_ids = tokenizer.ids_as_written(tf.constant(texts)).to_list()
    assert len(tokens) == len(found_ids) == len(texts)
    for row, row_tokens, row_ids in zip(rows, tokens, found_ids, strict=True):
        expected = [token for run in row for token in naive_tokens(run.decode(), ids)]
        assert [token.decode() for token in row_tokens] == expected
        assert row_ids == [
            ids[token] if token in ids else len(ids) + naive_bucket(token[-1]) for token in expected
        ]


def random_texts(number, seed=0):
    generator = random.Random(seed)
    characters = ALPHABET + "     eeehhl" + UNKNOWN
    words = ["the", "hello", "World", " ", ", ", "10", ". ", "x"]
    texts = []
    for _ in range(number):
        parts = [generator.choice([generator.choice(characters), *words]) for _ in range(15)]
        texts.append("".join(parts[: generator.randint(0, 15)]))
    return texts


def test_sizes(tokenizer, vocabulary):
    size = len(SUBWORDS) + 2 * len(ALPHABET)
    assert (tokenizer.name, tokenizer.vocab_size) == ("subword", size)
    assert (tokenizer.num_oov_buckets, tokenizer.num_ids) == (1000, size + 1000)
    assert tokenizer.padding_id == tokenizer.num_ids
    assert tokenizer.path == str(vocabulary)


def test_golden_tokens(tokenizer):
    texts = ["Hello world, the 10!", "", "\U00012000a b\U00012000", "held \ufe4f"]
    assert [[token.decode() for token in row] for row in tokenizer.tokenize(texts).to_list()] == [
        ["﹏hello", "﹏world", "﹏, ", "﹏the", "﹏10", "﹏!"],
        [],
        ["﹏\U00012000", "a", "﹏b", "\U00012000"],
        ["﹏h", "e", "ld", "﹏ ", "\ufe4e", "\ufe4d"],
    ]
    first = len(SUBWORDS)
    assert tokenizer.ids_as_written(texts).to_list() == [
        [1, 2, 7, 0, 8, first + 2 * ALPHABET.index("!") + 1],
        [],
        [56 + 893, first, first + 3, 56 + 893],
        [first + 2 * 5 + 1, first + 8, 6, first + 2 * 14 + 1, 56 + 134, 56 + 424],
    ]


def test_random_text_equals_the_plain_cut(tokenizer, vocabulary):
    check_against_naive(tokenizer, read_vocabulary(vocabulary), random_texts(2000))


ANY_TEXT = st.text(st.characters(codec="utf-8") | st.sampled_from(ALPHABET + UNKNOWN), max_size=40)
FEW_CHARACTERS = st.text(st.sampled_from("ab .x" + UNKNOWN), max_size=20)


def lowered(text):
    """Lower-case with TensorFlow, which stops at NULs, so these are restored."""
    parts = tf.strings.lower(tf.constant(text.split("\0")), encoding="utf-8")
    return "\0".join(part.decode() for part in parts.numpy())


@settings(max_examples=40, deadline=None)
@given(st.lists(ANY_TEXT | FEW_CHARACTERS, min_size=1, max_size=30))
def test_tokens_give_the_text_back(tokenizer, texts):
    rows = tokenizer.tokenize(tf.constant(texts)).to_list()
    for text, tokens in zip(texts, rows, strict=True):
        assert restored_texts(b"".join(tokens).decode()) == [lowered(text)]


def test_ids_are_those_of_folded_texts_and_tokens_keep_the_characters(tokenizer, piece_model):
    plain, written = "the hello, 10!", "\u2028the\u00a0 ｈello\u200b,\t1０!\n"
    for one in (tokenizer, load_tokenizer(piece_model)):
        assert one.token_ids([written]).to_list() == one.token_ids([plain]).to_list()
        assert one.token_ids([plain]).to_list() == one.ids_as_written([plain]).to_list()
        assert one.ids_as_written([written]).to_list() != one.ids_as_written([plain]).to_list()
    (tokens,) = tokenizer.tokenize([written]).to_list()
    assert restored_texts(b"".join(tokens).decode()) == [written]


@settings(max_examples=40, deadline=None)
@given(st.lists(FEW_CHARACTERS, min_size=1, max_size=30))
def test_stripping_clients_stay_aligned(tokenizer, texts):
    rows = tokenizer.tokenize(tf.constant(texts)).to_list()
    for tokens, ids in zip(
        rows, tokenizer.ids_as_written(tf.constant(texts)).to_list(), strict=True
    ):
        stripped = [token.decode().replace(WORD_START, "") for token in tokens]
        assert len([token for token in stripped if token]) == len(ids)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (b"hello" * 210_000, 1 + 2 * 209_999),
        (b" " * 50_000, 50_000 - 1),
        (b"\xff" * 50_000, 50_000),
        (b"\0" * 50_000, 100_000),
        (b"x" * 50_000, 50_000),
        (b"the " * 50_000, 50_000 + 1),
    ],
)
def test_long_texts_are_cut_like_short_ones(tokenizer, text, number):
    (tokens,) = tokenizer.tokenize(tf.constant([text])).to_list()
    assert len(tokens) == number
    expected = text.replace(b"\xff", "\ufffd".encode()).decode()
    assert restored_texts(b"".join(tokens).decode()) == [expected]


def test_number_of_buckets_is_kept(vocabulary):
    tokenizer = load_tokenizer(vocabulary, num_oov_buckets=3)
    ids = tokenizer.token_ids(["qxzjkvyu\U00012000"]).values.numpy() - tokenizer.vocab_size
    assert set(ids) == {0, 1, 2}
    with pytest.raises(ValueError, match=r"num_oov_buckets must be at least 1\. Received: 0"):
        load_tokenizer(vocabulary, num_oov_buckets=0)


@pytest.fixture(scope="module")
def piece_model(tmp_path_factory):
    from convert_tf.corpora.vocabulary import train_sentencepiece

    texts = [f"hello {a} world, the {b} of {a} is it's {b}!" for a in "abcd" for b in "wxyz"]
    path = tmp_path_factory.mktemp("pieces") / "vocab.model"
    path.write_bytes(train_sentencepiece([text.encode() for text in texts * 4], vocab_size=60))
    return path


def test_sentencepiece_ids_and_text(piece_model):
    import sentencepiece

    tokenizer = load_tokenizer(piece_model)
    package = sentencepiece.SentencePieceProcessor(model_file=str(piece_model))
    assert isinstance(tokenizer, SentencePieceTokenizer)
    assert SentencePieceTokenizer(piece_model).num_oov_buckets == 1000
    assert (tokenizer.name, tokenizer.vocab_size) == ("sentencepiece", package.vocab_size())
    assert tokenizer.padding_id == tokenizer.num_ids == package.vocab_size() + 1000
    texts = ["Hello WORLD", "", "  the \U00012000 of", "it's \U0001f600\U0001f600!", "x"]
    tokens = tokenizer.tokenize(texts).to_list()
    ids = tokenizer.ids_as_written(texts).to_list()
    for text, row, row_ids in zip(texts, tokens, ids, strict=True):
        pieces = package.encode(text.lower(), out_type=str)
        assert [token.decode() for token in row] == pieces
        assert package.decode(pieces) == text.lower()
        assert row_ids == [
            package.vocab_size() + naive_bucket(piece)
            if package.is_unknown(package.piece_to_id(piece))
            else package.piece_to_id(piece)
            for piece in pieces
        ]
    assert any(index >= tokenizer.vocab_size for row in ids for index in row)


def test_sentencepiece_takes_any_bytes(piece_model):
    tokenizer = load_tokenizer(piece_model)
    texts = [b"a\0b", b"\xff\xfe", b"", b" " * 1000, b"hello" * 20_000]
    ids = tokenizer.token_ids(texts)
    assert ids.to_list() == tokenizer.token_ids(texts).to_list()
    assert int(tf.reduce_max(ids.values)) < tokenizer.padding_id
    assert "\ufffd".encode() in b"".join(tokenizer.tokenize(texts).to_list()[0])


FRESH = """
import json, sys
import tensorflow as tf
import tensorflow_text
assert not any(name.startswith("convert_tf") for name in sys.modules)
module = tf.saved_model.load(sys.argv[2])
texts = tf.constant(json.loads(sys.argv[1]))
with open(module.tokenizer.asset.asset_path.numpy(), "rb") as file:
    asset = file.read().hex()
print(json.dumps([module.token_ids(texts).to_list(), asset]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["vocabulary", "piece_model"])
def test_exported_modules_stand_alone(request, kind, tmp_path):
    original = request.getfixturevalue(kind)
    texts = [*random_texts(100, seed=3), "hello\n\nworld \\", "", "Hello \U00012000", "  a"]
    copy = tmp_path / original.name
    copy.write_bytes(original.read_bytes())
    module = tf.Module()
    module.tokenizer = load_tokenizer(copy)
    signature = [tf.TensorSpec([None], tf.string)]
    module.token_ids = tf.function(module.tokenizer.token_ids, input_signature=signature)
    tf.saved_model.save(module, str(tmp_path / "module"))
    copy.unlink()
    printed = printed_by(FRESH, json.dumps(texts), tmp_path / "module")
    ids = module.tokenizer.token_ids(texts).to_list()
    assert json.loads(printed) == [ids, original.read_bytes().hex()]


def test_half_an_emoji_is_the_character_of_replacement(vocabulary, piece_model):
    in_graph = map(load_tokenizer, (vocabulary, piece_model))
    for tokenizer in (*in_graph, PlainTokenizer(read_vocabulary(vocabulary))):
        half, whole = (tokenizer.flat_ids([text], 9) for text in ("hi \ud83d", "hi \ufffd"))
        assert half[0].tolist() == whole[0].tolist()
    assert [*text_bytes(["hi \ud83d"])] == ["hi \ufffd".encode()]


@pytest.mark.parametrize("content", [b"", b"\n\nwords\n", b"\n\x0e\n\x05<unk>\x15", b"\xff\xd8"])
def test_load_refuses_other_files(tmp_path, content):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(VocabularyError, match=r"file is (empty|not UTF-8|neither)"):
        load_tokenizer(tmp_path / "file")


TEXTS = [
    "", " ", "Hello, embedding!", "the cats sat", "How are you?", "Ünïcödé Éa e\u0301",
    "don't stop-it 12 a.b", "ab中cd", "zero\u200bwidth\u00ad", "tab\tnew\nline\rnbsp\u00a0x",
    "\x00\ufffd\x07gone", "[MASK] [SEP]", "ΣΑΣ", "İi ıI", "a" * 100, "a" * 101, "b" * 300 + " c",
    "x~y$z=^`|<>", "“quoted”—dash…", "😀 ok", "ß ẞ ﬁ", "한국", "e\u0327\u0301",
]  # fmt: skip


def _plain_ids(text: str, vocabulary: list[str], *, lower: bool) -> list[int]:
    """Return the ids of BERT's published tokenizer, computed letter by letter."""
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


def test_a_long_run_of_accents_takes_linear_time(tmp_path):
    tokenizer = load_tokenizer(_write(tmp_path, do_lower_case=True))
    start = time.perf_counter()
    # NFD would sort these marks, which are in the wrong order.
    texts = ["e" + "\u0301\u0316" * 60_000 + "mbedding", "embedding"]
    found = tokenizer.token_ids(texts).to_list()
    assert time.perf_counter() - start < 2  # seconds
    assert found[0] == found[1]


def test_golden(tmp_path):
    """The ids equal those of the package tokenizers 0.23 for this vocabulary."""
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
        (["Hello"], {}, "Hello", ["Hello"]),  # an entry with a capital letter means a cased model
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
