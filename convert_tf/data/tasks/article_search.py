"""Wikipedia article search: find the article that a sentence comes from.

Files have StarSpace's labelDoc format: one article per line, with tabs between its sentences. Each
article becomes one example. One of its sentences is the context, and the rest of the article is the
correct candidate. The wrong candidates are 10,000 other articles.

A hash of the article chooses the sentence, so the choice does not depend on the order of the file.
The chosen sentence is also removed from the articles that serve as wrong candidates, so all
examples in a block of 10,001 articles share the same candidates. A file with fewer articles is a
single block. The last block of a longer file consists of the file's last 10,001 articles. Articles
with only one sentence are not used.

Reference: arXiv 1905.01969 §3, Table 1; arXiv 1709.03856 §5.3.
"""

import itertools
import re
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from convert_tf.data.tasks.item import TaskItem, example_item, numbered_lines, problem_item
from convert_tf.readers.columns import column_names, names_of_candidates
from convert_tf.readers.files import TableFile

NUM_CANDIDATES = 10_001
_JSON_START = re.compile(r"\s*[\[{]\s*([\[{\"]|$)")


class _Article(NamedTuple):
    line: int
    sentence: str
    rest: str


def is_label_doc(head: Sequence[str]) -> bool:
    """Return whether the first non-empty lines of a file look like articles, not like a table.

    In a file of articles, most lines have tabs, but the number of tabs varies. This is also true of
    some tables of candidates: of CSV and TSV with tabs or line breaks in texts, and of a JSON value
    that is indented with tabs. Such tables are recognised by their first lines.
    """
    if any(map(_names_candidates, head[:2])) or any(map(_JSON_START.match, head[:1])):
        return False
    tabs = [line.count("\t") for line in head]
    return 2 * sum(map(bool, tabs)) > len(tabs) and len(set(tabs)) > 1


def _names_candidates(line: str) -> bool:
    """Return whether a line is the header of a CSV or TSV with candidates."""
    rows = ([cell.strip(' "') for cell in line.split(delimiter)] for delimiter in "\t,;|")
    return any(names_of_candidates(column_names(row)) for row in rows)


def read_articles(file: TableFile) -> Iterator[TaskItem]:
    """Yield one item for each article."""
    before: list[_Article] = []
    block: list[_Article] = []
    for line, text in numbered_lines(file):
        sentences = [sentence for cell in text.split("\t") if (sentence := cell.strip())]
        if len(sentences) < 2:
            sentence = "The article has fewer than two sentences, but the task needs two."
            yield problem_item(line, "too_few_sentences", sentence, is_bad=False)
            continue
        query = sentences.pop(zlib.crc32(text.encode()) % len(sentences))
        block.append(_Article(line, query, " ".join(sentences)))
        if len(block) == NUM_CANDIDATES:
            yield from _items(block, 0)
            before, block = block, []
    if block:
        first = len(before) and NUM_CANDIDATES - len(block)
        yield from _items([*before[len(before) - first :], *block], first)


def _items(articles: Sequence[_Article], first: int) -> Iterator[TaskItem]:
    """Yield an item for each article in a block from index `first` on."""
    candidates = tuple(article.rest for article in articles)
    for place, article in itertools.islice(enumerate(articles), first, None):
        _, sentence, rest = article
        item = example_item(article.line, (sentence,), candidates, (place,))
        yield item._replace(dialogue=(sentence, rest), has_usual_number=False)
