"""Conversations of the papers' tasks (`convert_tf.data.tasks`), with their right answers only."""

from collections.abc import Iterable, Iterator

from convert_tf.corpora.dialogues import pair_id
from convert_tf.corpora.dumps import Conversation, CountedFile, Turn, decoded, lines_in
from convert_tf.data.tasks.formats import TaskFormat
from convert_tf.data.tasks.item import NumberedLines, TaskItem
from convert_tf.storage.lines import read_pieces


def read_task(
    file: CountedFile, task: TaskFormat, *, pieces: Iterable[bytes] | None = None
) -> Iterator[Conversation]:
    """Yield a conversation for each right answer of each example. Only its last turn is an answer.

    The id is a hash of the dialogue's first turn, so all examples of a dialogue are in one split.

    Args:
        file: a `.gz`, `.zst`, `.bz2`, `.xz` or plain file. It counts what cannot be used by the
            reasons of the format's reader, and examples without a context as `empty_context`.
        task: its format.
        pieces: the decompressed bytes of the file, if it is open already.

    Raises:
        ValueError: if the file is JSON that ends too early, or its answers cannot be read.
    """
    for item in task.read(_numbered_lines(file, pieces or read_pieces(file)), file.path):
        file.lines, last = item.line, file.lines
        yield from _conversations(item, file, task.name)
        file.lines = last


def _numbered_lines(file: CountedFile, pieces: Iterable[bytes]) -> NumberedLines:
    for line in lines_in(pieces, file):
        with file.skipping():
            yield file.lines, decoded(line).removesuffix("\r")


def _conversations(item: TaskItem, file: CountedFile, source: str) -> Iterator[Conversation]:
    if item.problem:
        file.skip(item.problem.reason, is_bad=item.problem.is_bad)
    if not item.example:
        return
    turns, candidates, labels = item.example
    if not turns:
        file.skip("empty_context", is_bad=False)
        return
    for answer in dict.fromkeys(candidates[place] for place in labels):
        texts = (*turns, answer)
        yield Conversation(
            pair_id(item.dialogue), source, tuple(map(Turn, texts)), first_answer=len(turns)
        )
