"""Read the papers' tasks (`convert_tf.data.tasks`) as conversations, with correct answers only."""

from collections.abc import Iterator

from convert_tf.corpora.dialogues import pair_id
from convert_tf.corpora.dumps import Conversation, CountedFile, Turn
from convert_tf.data.tasks.formats import TaskFormat
from convert_tf.data.tasks.item import TaskItem


def read_task(file: CountedFile, task: TaskFormat) -> Iterator[Conversation]:
    """Yield a conversation for each correct answer to each example. The answer is the last turn.

    The conversation id is a hash of the texts that the dialogue's examples share
    (`TaskItem.dialogue`), so all examples in a dialogue are in the same split.

    Args:
      file: a `.gz`, `.zst`, `.bz2`, `.xz` or plain file. It counts unusable examples by the reasons
        that the format's reader gives, and examples without a context as `empty_context`. It warns
        about examples that do not have as many candidates as the first example. The answers in such
        examples are still used.
      task: format of the file.

    Raises:
      ValueError: if the file is JSON that ends too early, or the answers to a test file cannot be
        read.
    """
    number, first = 0, ""
    for item in task.items(file):
        if item.example and item.problem:
            number += 1
            first = first or f"line {item.line:,}: {item.problem.sentence}"
        file.lines, last = item.line, file.lines
        yield from _conversations(item, file, task.name)
        file.lines = last
    if number:
        file.warn(f"{first} Examples like this: {number:,}. Their correct answers are used.")


def _conversations(item: TaskItem, file: CountedFile, source: str) -> Iterator[Conversation]:
    if not item.example:
        if item.problem:
            file.skip(item.problem.reason, is_bad=item.problem.is_bad)
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
