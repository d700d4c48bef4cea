r"""Add and remove candidates of an index in place. Only new texts are encoded.

```
convert-tf index edit --cache cache/ --add new.txt --remove old.txt
convert-tf index edit --cache cache/ --input candidates.txt
```

With `--input`, the candidates in the input file replace all candidates in the index, as if it were
built again. A search that runs at the same time finds the old candidates.

`--encoder` and `--kind` must be the same as when the index was built.

Flags:
  cache: Folder written by convert-tf index build.
  add: Text file with one candidate per line, or a table. These candidates are appended, except for
    texts that are already in the index.
  remove: Text file with one candidate per line, or a table. These candidates are removed before
    others are added.
  input: Text file with all candidates, one per line, or a table, instead of --add and --remove.
  batch_size: Number of texts per batch.
"""

from typing import Any

from convert_tf.cli.flags import DEFAULT_ENCODER, NEEDED, Define, UsageError, define_encoder
from convert_tf.readers.columns import name_of_candidate
from convert_tf.readers.texts import Texts, filled_texts
from convert_tf.search.cache import edit_cache
from convert_tf.search.encoders import SEARCH_KINDS, load_encoder
from convert_tf.storage.lines import STANDARD_INPUT


def define_flags(define: Define) -> None:
    define_encoder(define, DEFAULT_ENCODER)
    define("kind", "response", choices=SEARCH_KINDS)
    define("cache", NEEDED)
    define("add", None)
    define("remove", None)
    define("input", None)
    define("batch_size", 1024, lower_bound=1)


def run(values: Any) -> None:
    if (values.input is None) == (values.add is None and values.remove is None):
        raise UsageError("Pass either --input, or --add, --remove or both.")
    if values.add == values.remove == STANDARD_INPUT:
        raise UsageError(
            "--add and --remove both read standard input. Pass a file for one of them."
        )
    texts, add, remove = (_texts(values[name].value) for name in ("input", "add", "remove"))
    encoder = load_encoder(values.encoder, kind=values.kind)
    cache, encoded = edit_cache(
        values.cache,
        encoder.encode_candidates,
        fingerprint=encoder.fingerprint,
        name=encoder.name,
        texts=texts,
        add=add or (),
        remove=remove or (),
        batch_size=values.batch_size,
    )
    print(f"wrote {values.cache}: {cache.count:,} candidates, {encoded:,} newly encoded")


def _texts(path: str | None) -> list[str] | None:
    if path is None:
        return None
    return [*filled_texts(Texts(path, find=name_of_candidate))]
