"""Read plain documents as conversations whose turns are sentences.

A file is plain text with one sentence per line and an empty line between documents, as for BERT's
pre-training. A line with tabs is a whole document, with tabs between its sentences (StarSpace's
labelDoc format). Trunks are pre-trained on documents in the same way as on conversations: a
sentence is the context, the next sentence is the response, and the sentences before the context are
earlier turns.

Reference: arXiv 1905.01969 §4.1, §5.3; arXiv 1810.04805 §3.1.
"""

from collections.abc import Iterator

from convert_tf.corpora.dialogues import pair_id
from convert_tf.corpora.dumps import Conversation, CountedFile, Turn
from convert_tf.readers.files import decoded, lines_in
from convert_tf.readers.texts import is_table
from convert_tf.storage.content import HEAD_BYTES, ContentError, check_format
from convert_tf.storage.lines import open_decompressed

SOURCE = "documents"
_MAX_SENTENCES = 10_000  # longer documents are divided, to limit memory


def read(file: CountedFile) -> Iterator[Conversation]:
    """Yield each document as a conversation whose turns are the document's sentences.

    The conversation id is a hash of the first two sentences, so copies of a document are in the
    same split. An unusable line ends a document, because the sentences before and after it do not
    follow each other. The lines after it begin a new document.

    Args:
      file: a `.gz`, `.zst`, `.bz2`, `.xz` or plain file. It counts unusable lines as
        `invalid_utf8`, `line_too_long` and `unfinished_line`, and documents with only one sentence
        as `too_few_sentences`.

    Raises:
      ContentError: if the file has another format.
    """
    sentences: list[str] = []
    last_line = 0  # number of the last usable line
    with open_decompressed(file) as stream:
        head = stream.peek()[:HEAD_BYTES]
        check_format(file.name, head)
        if is_table(file.path, head, delimiters=",;|"):  # documents may contain tabs
            raise ContentError(
                f"{file.name} is a table. Pass plain text with one sentence per line. To read a "
                "table of questions and answers, pass it as --pairs."
            )
        for line in lines_in(iter(stream.read1, b""), file):
            with file.skipping():
                cells = [text for cell in decoded(line).split("\t") if (text := cell.strip())]
                if file.lines > last_line + 1:
                    yield from _document(sentences, file)
                    sentences = []
                last_line = file.lines
                if len(cells) == 1:
                    sentences.append(cells.pop())
                    if len(sentences) < _MAX_SENTENCES:
                        continue
                yield from _document(sentences, file)
                yield from _document(cells, file)
                sentences = []
    yield from _document(sentences, file)


def _document(sentences: list[str], file: CountedFile) -> Iterator[Conversation]:
    if len(sentences) > 1:
        yield Conversation(pair_id(sentences[:2]), SOURCE, tuple(map(Turn, sentences)))
    elif sentences:
        file.skip("too_few_sentences", is_bad=False)
