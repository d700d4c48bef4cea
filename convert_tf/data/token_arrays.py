"""Token ids on disk, for training without TensorFlow.

A folder written by `convert-tf tokenize` contains

- `arrays.json`: the `version` of the format, how the texts were tokenized (`tokenizer`,
  `vocab_size`, `num_oov_buckets`, `padding_id`, `max_tokens`, the file name and SHA-256 of the
  vocabulary), the `dtype` of the ids, and the number of examples and tokens in each split;
- the vocabulary;
- for each split, `{split}-sources.npy`, int32 `[examples]`: for each example, the index of its
  source in the `sources` of `arrays.json`;
- for each split, `{split}-{name}-ids.npy`, the token ids of all texts, one text after another, and
  `{split}-{name}-offsets.npy`, int64 `[examples + 1]`, the positions where texts begin and end.
  Pairs have the names `context`, `response` and `extra_context` (the earlier turns, most recent
  first, joined with single spaces). `TEXTS_OF` lists the names for other kinds of examples;
- `sha256.json`: checksums of the `.npy` files, which are checked when a split is opened. Folders
  from earlier versions have no checksums and are not checked.

Token ids are stored as 16-bit numbers if all ids fit, including the padding id. Otherwise they are
stored as 32-bit numbers.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from convert_tf.data.packing import TokenIds, join_texts, joined_ranges
from convert_tf.data.schema import PAIR, PAIR_AND_EXTRA_CONTEXT
from convert_tf.storage.arrays import FolderFormat
from convert_tf.storage.checksums import CHECKSUMS_FILE, check_files, checksum, file_checksum
from convert_tf.text.vocabulary import SETTINGS_FILE, VOCABULARY_FILES

TRIPLET = ("anchor", "paraphrase", "opposite")
# The kinds of examples in a folder, with the names of their texts. Pairs may also have earlier
# turns.
PAIRS, UTTERANCES, TRIPLETS = "pairs", "utterances", "triplets"
TEXTS_OF: dict[str, tuple[str, ...]] = {PAIRS: PAIR, UTTERANCES: ("text",), TRIPLETS: TRIPLET}
_SHOWN = {PAIRS: "pairs", UTTERANCES: "single texts", TRIPLETS: "triplets"}
_FLAGS = {PAIRS: "data", UTTERANCES: "utterances", TRIPLETS: "triplets"}
DTYPES = ("uint16", "int32")
COLUMN_DTYPE = "int32"
_COLUMNS = ("sources", "labels")
FORMAT = FolderFormat(
    what="folder of token ids",
    facts_file="arrays.json",
    other_files=r"\w+-(\w+-ids|[\w-]+-offsets|sources|labels|bytes)\.npy|"
    + "|".join([*VOCABULARY_FILES.values(), SETTINGS_FILE, CHECKSUMS_FILE]),
    kinds={
        "tokenizer": str,
        "vocab_size": int,
        "num_oov_buckets": int,
        "padding_id": int,
        "max_tokens": int,
        "vocabulary": str,
        "vocabulary_sha256": str,
        "splits": dict,
    },
    dtypes=DTYPES,
    remedy="Write it again with `convert-tf tokenize`.",
)


def ids_file(split: str, name: str) -> str:
    """Return the name of the file with the token ids for one kind of text."""
    return f"{split}-{name}-ids.npy"


def offsets_file(split: str, name: str) -> str:
    """Return the name of the file with the offsets for one kind of text."""
    return f"{split}-{name}-offsets.npy"


def column_file(split: str, name: str) -> str:
    """Return the name of the file with a column for the examples, such as their sources."""
    return f"{split}-{name}.npy"


def dtype_of_ids(padding_id: int) -> str:
    """Return the narrowest of `DTYPES` that fits all token ids, including the padding id."""
    return DTYPES[0] if padding_id <= np.iinfo(DTYPES[0]).max else DTYPES[1]


class ArrayFolder:
    """A folder of token ids.

    Args:
      folder: folder written by `convert-tf tokenize`.

    Attributes:
      tokenizer_name, vocab_size, num_oov_buckets: properties that a model must match.
      vocabulary: path of the vocabulary in the folder.
      max_tokens: maximum number of tokens per stored text; longer texts were cut.
      sources: names of the texts' sources.
      holds: the kind of examples: `pairs`, `utterances` (`convert_tf.data.utterances`) or
        `triplets` (`convert_tf.data.triplets`).

    Raises:
      ValueError: if the folder is incomplete or damaged, or has another version of the format.

    Example:
      examples = ArrayFolder("ids/").open("train", max_tokens=60)
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        facts = FORMAT.facts(folder)
        _check_entries(folder, facts)
        self.tokenizer_name: str = facts["tokenizer"]
        self.vocab_size: int = facts["vocab_size"]
        self.num_oov_buckets: int = facts["num_oov_buckets"]
        self.max_tokens: int = facts["max_tokens"]
        self.vocabulary = Path(folder) / facts["vocabulary"]
        self.sources: list[str] = facts.get("sources", [])
        self.holds = next((kind for kind in (UTTERANCES, TRIPLETS) if kind in facts), PAIRS)
        self._facts = facts
        self._checked: set[str] = set()
        if not self.vocabulary.is_file():
            raise ValueError(
                f"{str(folder)!r} lacks its vocabulary, {self.vocabulary.name}. {FORMAT.remedy}"
            )
        if file_checksum(self.vocabulary) != facts["vocabulary_sha256"]:
            raise ValueError(
                f"{str(self.vocabulary)!r} is not the vocabulary that the token ids were made "
                "with. Copy the correct file there."
            )

    def open(
        self,
        split: str,
        *,
        max_tokens: int,
        with_extra_contexts: bool = False,
        turn_prefixes: bool = False,
        holds: str = PAIRS,
    ) -> "ArrayExamples":
        """Return the examples of a split, after checking the checksums of its files.

        Each file is read and checked once, when it is first needed.

        Args:
          split: name of the split.
          max_tokens: longer texts are cut to this many tokens. It must not exceed the `max_tokens`
            of the folder.
          with_extra_contexts: whether to read the earlier turns too, joined into one text.
          turn_prefixes: must be False, because token ids do not record where turns end.
          holds: the required kind of examples: `pairs`, `utterances` or `triplets`.

        Raises:
          ValueError: if the split is missing, its files are damaged or do not fit together, the
            stored texts were cut to fewer than `max_tokens` tokens, the folder holds another kind
            of examples, or `turn_prefixes` is set.
        """
        if turn_prefixes:
            raise ValueError(
                f"{str(self.folder)!r} contains token ids, which join all earlier turns into one "
                "text, but turn_prefixes needs separate turns. Train on the records, or omit "
                "--turn_prefixes."
            )
        if holds != self.holds:
            raise ValueError(
                f"{str(self.folder)!r} contains token ids of {_SHOWN[self.holds]}; pass it as "
                f"--{_FLAGS[self.holds]}. Token ids of {_SHOWN[holds]} are needed here; write them "
                f"with `convert-tf tokenize --{_FLAGS[holds]}`."
            )
        if split not in self._facts["splits"]:
            raise ValueError(
                f"{str(self.folder)!r} lacks the split {split!r}. It has "
                f"{', '.join(self._facts['splits'])}. Use one of these, or write the folder again "
                "from records that have the split."
            )
        if max_tokens > self.max_tokens:
            raise ValueError(
                f"max_tokens is {max_tokens}, but the texts in {str(self.folder)!r} were cut to "
                f"{self.max_tokens} tokens. Tokenize again with --max_tokens of at least "
                f"{max_tokens}. If you train a new model, you can lower --max_tokens instead."
            )
        names = PAIR_AND_EXTRA_CONTEXT if with_extra_contexts else TEXTS_OF[holds]
        examples = ArrayExamples(
            self.folder, self._facts, split, names=names, max_tokens=max_tokens
        )
        self._check(split, names)
        return examples

    def _check(self, split: str, names: Iterable[str]) -> None:
        """Check the files of texts and columns that have a checksum and were not checked before."""
        files = {column_file(split, column) for column in _COLUMNS}
        files |= {file(split, name) for name in names for file in (ids_file, offsets_file)}
        if unchecked := files - self._checked:  # without names, check_files checks all files
            check_files(self.folder, *unchecked)
            self._checked |= unchecked


def _check_entries(folder: str, facts: Mapping[str, Any]) -> None:
    """Check the values inside `splits` and `sources`, which `FORMAT` does not check.

    Raises:
      ValueError: if a split has no number of examples, or the sources are not a list of names.
    """
    splits, sources = facts["splits"].values(), facts.get("sources", [])
    numbers = [split.get("examples") if isinstance(split, dict) else None for split in splits]
    wrong = [] if all(type(number) is int and number >= 0 for number in numbers) else ["splits"]
    if not isinstance(sources, list) or not all(isinstance(name, str) for name in sources):
        wrong.append("sources")
    if wrong:
        raise ValueError(
            f"{Path(folder) / FORMAT.facts_file} has entries with a wrong value: "
            f"{', '.join(wrong)}. {FORMAT.remedy}"
        )


class ArrayExamples:
    """One split of a folder of token ids; implements `convert_tf.data.schema.Examples`.

    The files are memory-mapped. The operating system caches recently read parts.

    Args:
      folder: folder of token ids.
      facts: content of the folder's `arrays.json`.
      split: name of the split.
      names: names of the texts to read.
      max_tokens: longer texts are cut to this many tokens.

    Attributes:
      source_names: names of the folder's sources.

    Raises:
      ValueError: if a file is missing, damaged, or does not fit the other files.
    """

    def __init__(
        self,
        folder: str,
        facts: Mapping[str, Any],
        split: str,
        *,
        names: tuple[str, ...],
        max_tokens: int,
    ) -> None:
        self.names = names
        self.max_tokens = max_tokens
        self.padding_id: int = facts["padding_id"]
        self.num_examples: int = facts["splits"][split]["examples"]
        self.source_names: list[str] = facts.get("sources", [])
        self._folder, self._split = folder, split
        self._files = {}
        for name in names:
            files = (
                FORMAT.mapped(folder, ids_file(split, name), facts["dtype"], (-1,)),
                FORMAT.mapped(folder, offsets_file(split, name), "int64", (-1,)),
            )
            ids, offsets = (file.array for file in files)
            if len(offsets) != self.num_examples + 1 or offsets[0] or offsets[-1] != len(ids):
                raise ValueError(
                    f"The token ids are damaged: there are {len(offsets)} offsets from "
                    f"{offsets[:1]} to {offsets[-1:]} for {len(ids)} ids of {self.num_examples} "
                    f"examples, in {name} of {split} in {str(folder)!r}. {FORMAT.remedy}"
                )
            self._files[name] = files

    def load(self, numbers: np.ndarray) -> np.ndarray:
        """Return `numbers`, int64 `[examples]`, without reading anything."""
        return numbers

    def token_ids(self, loaded: np.ndarray) -> TokenIds:
        """Return the texts of examples: all with the first name, then the second, ….

        Args:
          loaded: int64 `[examples]`, numbers of examples.

        Returns:
          The int32 token ids of names × examples texts.

        Raises:
          ValueError: as for `texts`.
        """
        return join_texts([self.texts(name, loaded) for name in self.names])

    def texts(self, name: str, examples: np.ndarray) -> TokenIds:
        """Return the texts with one name for some examples.

        Args:
          name: one of `names`.
          examples: int64 `[examples]`, numbers of examples.

        Returns:
          The int32 token ids of one text per example.

        Raises:
          ValueError: if an id or an offset is out of range, or a file was truncated.
        """
        ids, offsets = (file.checked() for file in self._files[name])
        ids_path, offsets_path = (file.path for file in self._files[name])
        begins = offsets[examples]
        lengths = np.minimum(offsets[examples + 1] - begins, self.max_tokens)
        if lengths.min(initial=0) < 0 or begins.min(initial=0) < 0:
            raise _damaged("an offset is lower than the previous one", offsets_path)
        places = joined_ranges(begins, lengths)
        if places.max(initial=-1) >= len(ids):
            raise _damaged(f"an offset exceeds the number of ids, {len(ids)}", offsets_path)
        flat = ids[places].astype(np.int32)
        if len(flat) and not 0 <= flat.min() <= flat.max() < self.padding_id:
            raise _damaged(
                f"an id is {flat.max()}, but ids must be below {self.padding_id}", ids_path
            )
        return TokenIds(flat, np.cumsum(np.concatenate([[0], lengths])))

    def thinned(self, shares: Mapping[str, float], start: int, stop: int) -> np.ndarray:
        """From a range of examples, select a share of each source's examples.

        Examples are stored in the order of a hash, so evenly spaced examples are as good as a
        random sample.

        Args:
          shares: for each source name, the share of its examples to keep, from 0 to 1. All examples
            from other sources are kept.
          start, stop: the range of example numbers, which does not include `stop`.

        Returns:
          int64 `[n]`, the numbers of the kept examples, ascending.

        Raises:
          ValueError: if a source is unknown, or the sources file is missing or damaged.
        """
        unknown = sorted(set(shares) - set(self.source_names))
        if unknown:
            stored = ", ".join(map(repr, sorted(self.source_names)))
            raise ValueError(
                f"The token ids lack the sources {', '.join(map(repr, unknown))}. They have "
                f"{stored or 'none stored. ' + FORMAT.remedy}"
            )
        places = self.sources()[start:stop]
        is_kept = np.ones(len(places), bool)
        for name, share in shares.items():
            indices = np.flatnonzero(places == self.source_names.index(name))
            is_kept[indices] = np.diff(np.floor(np.arange(len(indices) + 1) * share)) > 0
        return start + np.flatnonzero(is_kept)

    def sources(self) -> np.ndarray:
        """Return the index of each example's source in `source_names`, int32 `[examples]`.

        Raises:
          ValueError: if the file is missing or damaged.
        """
        places = self.column("sources")
        if len(places) and not 0 <= places.min() <= places.max() < len(self.source_names):
            path = Path(self._folder) / column_file(self._split, "sources")
            raise _damaged(
                f"a source has number {places.max()}, but there are only {len(self.source_names)}",
                path,
            )
        return places

    def column(self, name: str) -> np.ndarray:
        """Return a column, such as `labels`: int32 `[examples]`, indices into its distinct values.

        Raises:
          ValueError: if the file is missing or damaged.
        """
        file, shape = column_file(self._split, name), (self.num_examples,)
        return FORMAT.mapped(self._folder, file, COLUMN_DTYPE, shape).checked()

    def checksum(self, names: Iterable[str]) -> str:
        """Read the files of the texts with the given names, and return their SHA-256."""
        files = (file for name in names for file in self._files[name])
        return checksum(np.ascontiguousarray(f.checked()).view(np.uint8).data for f in files)

    def sources_checksum(self) -> str:
        """Return the SHA-256 of all examples' sources. Raises the same errors as `sources`."""
        names = "\n".join(self.source_names).encode()
        return checksum([names, np.ascontiguousarray(self.sources()).view(np.uint8).data])


def _damaged(what: str, path: Path) -> ValueError:
    return ValueError(f"The token ids are damaged: {what}, in {str(path)!r}. {FORMAT.remedy}")
