"""Learn a vocabulary from prepared data or from text files."""

import contextlib
import io
import itertools
import os
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence

import tensorflow as tf

from convert_tf.corpora import dumps
from convert_tf.data.prefetch import in_order
from convert_tf.data.records import parse_texts
from convert_tf.data.schema import PAIR
from convert_tf.data.shards import list_shards
from convert_tf.extras import needs
from convert_tf.readers.delimited import DELIMITERS, TABLE_SUFFIXES, suffix
from convert_tf.readers.files import decoded, read_lines
from convert_tf.readers.texts import Texts, filled_texts, is_table
from convert_tf.storage.checksums import short_digest
from convert_tf.storage.content import HEAD_BYTES, check_format
from convert_tf.storage.files import write_file
from convert_tf.storage.lines import InputFile, distinct_files, file_state, open_decompressed
from convert_tf.storage.progress import Progress
from convert_tf.text import runs
from convert_tf.text.counting import WordCounter
from convert_tf.text.subwords import SubwordConfig, learn_subwords
from convert_tf.text.tokenizer import load_tokenizer
from convert_tf.text.vocabulary import write_vocabulary

_BATCH = 1000
# SentencePiece's result depends on the number of threads, so all machines use the same number.
_PIECE_THREADS = 16
_IN_GRAPH = tf.TensorSpec([None], tf.string)


def read_sentences(paths: Sequence[str]) -> Iterator[bytes]:
    """Yield the texts in data folders, text files and tables.

    Args:
      paths: folders, files and file patterns. A folder or file that is given twice is read once.

    Raises:
      ValueError: if a pattern matches no file, or a folder has no train split.
    """
    for path in _folders_and_files(paths):
        if os.path.isdir(path):
            yield from _read_records(list_shards(path, "train"))
        else:
            yield from _read_file(path)


def _folders_and_files(paths: Sequence[str]) -> list[str]:
    """Return the folders and the files that match the patterns, in order and without copies."""
    matches: list[str] = []
    for path in paths:
        matches += [path] if os.path.isdir(path) else dumps.find_files([path])
    return distinct_files(matches)


def _files_in(paths: Sequence[str]) -> list[str]:
    """Return the files that `read_sentences` reads."""
    files: list[str] = []
    for path in _folders_and_files(paths):
        files += list_shards(path, "train") if os.path.isdir(path) else [path]
    return files


def _read_file(path: str) -> Iterator[bytes]:
    """Yield the texts in the text column of a table, or the lines of another text file.

    Tabs make a file a table only if its name says so, because documents may also contain tabs.
    """
    delimiters = DELIMITERS if suffix(path) in TABLE_SUFFIXES else DELIMITERS.replace("\t", "")
    with open_decompressed(dumps.CountedFile(path)) as stream:
        has_columns = is_table(path, stream.peek()[:HEAD_BYTES], delimiters=delimiters)
    if has_columns:
        yield from map(str.encode, filled_texts(Texts(path)))
    else:
        yield from _read_lines(path)


def _read_lines(path: str) -> Iterator[bytes]:
    """Yield the lines of a text file that are UTF-8. Warnings give the numbers of skipped lines."""
    file = dumps.CountedFile(path)
    num_read, head = 0, b""
    for line in read_lines(file):
        if len(head) < HEAD_BYTES:
            head += line[:HEAD_BYTES] + b"\n"
            check_format(path, head)
        with file.skipping():
            decoded(line)
            num_read += 1
            yield line
    file.check_readable(num_read)
    file.print_warnings()
    for reason, number in sorted(file.skipped.items()):
        print(f"warning: {path}: skipped {number} ({reason})", file=sys.stderr)


def _read_records(shards: Sequence[str]) -> Iterator[bytes]:
    """Yield the texts in records. A text that occurs several times in a thread is yielded once."""
    seen: set[bytes] = set()
    records = tf.data.TFRecordDataset(list(shards)).batch(_BATCH)
    batches = records.map(lambda some: tuple(parse_texts(some, ("thread_id", *PAIR))))
    for threads, *columns in batches.prefetch(2).as_numpy_iterator():
        for texts in columns:
            for thread, text in zip(threads, texts, strict=True):
                digest = short_digest(thread + b"\0" + text)
                if digest not in seen:
                    seen.add(digest)
                    yield text


def in_graph(
    function: Callable[[tf.Tensor], tf.Tensor], sentences: Iterable[bytes]
) -> Iterator[list[bytes]]:
    """Apply a TensorFlow function to batches of texts on all cores.

    Args:
      function: function that maps a batch of texts, string `[B]`, to string `[N]`.
      sentences: the texts.

    Yields:
      The output for each batch, in order.
    """
    graph = tf.function(
        function, autograph=False, input_signature=[_IN_GRAPH]
    ).get_concrete_function()
    iterator = iter(sentences)
    batches = iter(lambda: list(itertools.islice(iterator, _BATCH)), [])
    # Two simultaneous calls per core keep all cores busy.
    at_once = 2 * (os.cpu_count() or 1)
    for output in in_order(graph, map(tf.constant, batches), at_once=at_once):
        yield output.numpy().tolist()


def count_words(sentences: Iterable[bytes]) -> WordCounter:
    """Count the words (runs, see `convert_tf.text.runs`) in folded texts."""
    counter = WordCounter()
    for words in in_graph(
        lambda batch: runs.split_runs(runs.fold_strings(batch)).values, sentences
    ):
        counter.add(words)
    return counter


def train_sentencepiece(sentences: Iterable[bytes], *, vocab_size: int) -> bytes:
    """Train a SentencePiece unigram model on folded, lower-cased texts, deterministically.

    Args:
      sentences: the texts.
      vocab_size: maximum number of pieces. A small corpus yields fewer pieces.

    Returns:
      The serialised model.

    Raises:
      ValueError: if SentencePiece cannot train with these texts or this size.
    """
    with needs("data", "Learning SentencePiece"):
        import sentencepiece

    sentences = iter(sentences)
    first = [*itertools.islice(sentences, 1)]  # reading raises errors that the trainer might hide
    lowered = itertools.chain.from_iterable(
        in_graph(
            lambda batch: runs.lower(runs.fold_strings(batch)), itertools.chain(first, sentences)
        )
    )
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=lowered,
            model_writer=model,
            model_type="unigram",
            vocab_size=vocab_size,
            hard_vocab_limit=False,
            character_coverage=0.9995,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            shuffle_input_sentence=False,
            max_sentence_length=2**16,
            num_threads=_PIECE_THREADS,
            bos_id=-1,
            eos_id=-1,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise ValueError(
            f"SentencePiece cannot learn {vocab_size} pieces from these texts ({error}). Pass "
            "more text or a different --vocab_size."
        ) from None
    return model.getvalue()


def learn(
    paths: Sequence[str],
    output: str,
    *,
    tokenizer: str = "subword",
    config: SubwordConfig | None = None,
    vocab_size: int = 31_476,
    max_sentences: int = 10_000_000,
) -> str:
    """Learn a vocabulary and write it atomically to a file.

    Args:
      paths: as for `read_sentences`.
      output: the vocabulary file to write. If it is a link, the file that it points to is replaced.
      tokenizer: "subword" or "sentencepiece".
      config: options for the subword learner; None for the paper's.
      vocab_size: maximum number of pieces in a SentencePiece model.
      max_sentences: maximum number of texts. If there are more, a random sample is drawn.

    Returns:
      A line with the numbers of sentences, words and subwords, to print.

    Raises:
      ValueError: if there is no text, or `output` is a folder, a device or a pipe.
      FileChangedError: if a file changed after the texts were counted.
    """
    if os.path.exists(output) and not os.path.isfile(output):
        raise ValueError(f"{output!r} exists and is not a file. Choose another --output.")
    os.makedirs(os.path.dirname(os.path.realpath(output)), exist_ok=True)
    with Progress("sentences") as progress:
        sentences = progress.counted(sample_sentences(paths, max_sentences))
        if tokenizer == "sentencepiece":
            model = train_sentencepiece(sentences, vocab_size=vocab_size)
            write_file(output, model, follows_links=True)
            pieces = load_tokenizer(output).vocab_size
            return f"wrote {output}: {progress.count:,} sentences, {pieces:,} subwords"
        counts = count_words(sentences).counts()
    subwords = learn_subwords(counts, config)
    write_vocabulary(output, subwords)
    return (
        f"wrote {output}: {progress.count:,} sentences, {len(counts):,} words, "
        f"{len(subwords):,} subwords"
    )


def sample_sentences(paths: Sequence[str], number: int) -> Iterator[bytes]:
    """Yield a random sample of the texts, in their original order.

    The texts are read twice, first only to count them, so they are never all in memory.

    Args:
      paths: as for `read_sentences`.
      number: size of the sample. If there are fewer texts, all of them are used.

    Raises:
      ValueError: if there is no text.
      FileChangedError: if a file changed after the texts were counted.

    Reference: arXiv 1911.03688 §2.1; Knuth, The Art of Computer Programming, 3.4.2, algorithm S.
    """
    files = [InputFile(path, state=file_state(path)) for path in _files_in(paths)]
    with contextlib.redirect_stderr(io.StringIO()):  # warnings are shown in the second pass
        total = remaining = sum(1 for _ in read_sentences(paths))
    for file in files:
        file.check_unchanged()
    draw = random.Random(0).random
    for sentence in read_sentences(paths):
        if number > 0 and draw() * remaining < number:
            number -= 1
            yield sentence
        remaining -= 1
    for file in files:
        file.check_unchanged()
    if not total:
        raise ValueError(
            f"There is no text in {', '.join(paths)}. Pass a data folder, or files with one "
            "sentence per line."
        )
