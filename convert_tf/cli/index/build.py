r"""Encode candidates once, for many searches.

```
convert-tf index build --input candidates.txt --output cache/ --dtype int8
```

With `--from`, the texts of an existing index are encoded again with another encoder. `--kind` and
`--dtype` are taken from this index unless you set them.

`--encoder` may also be the run of a bi- or poly-encoder. `convert_tf.search.cache` describes the
output folder.

Flags:
  input: Text file with one candidate per line, or a table with a column of candidates.
  from: Index whose texts are encoded again, instead of --input.
  output: Folder to write.
  dtype: Number format of the stored vectors.
  batch_size: Number of texts per batch.
  overwrite: Replace an existing cache.
"""

from typing import Any

from convert_tf.cli.flags import DEFAULT_ENCODER, NEEDED, Define, UsageError, define_encoder, same
from convert_tf.readers.columns import name_of_candidate
from convert_tf.readers.texts import Texts, filled_texts
from convert_tf.search.cache import DTYPES, CandidateCache, write_cache
from convert_tf.search.encoders import SEARCH_KINDS, load_encoder


def define_flags(define: Define) -> None:
    define_encoder(define, DEFAULT_ENCODER)
    define("kind", "response", choices=SEARCH_KINDS)
    define("input", None)
    define("from", None)
    define("output", NEEDED)
    define("dtype", "float32", choices=DTYPES)
    define("batch_size", 1024, lower_bound=1)
    define("overwrite", False)


def run(values: Any) -> None:
    old_folder = values["from"].value
    if (values.input is None) == (old_folder is None):
        raise UsageError("Pass one of --input and --from.")
    if old_folder is None:
        texts = filled_texts(Texts(values.input, find=name_of_candidate))
    else:
        old = CandidateCache(old_folder)
        texts = old.texts()
        if not values["kind"].present:
            values["kind"].value = old.kind
        if not values["dtype"].present:
            values["dtype"].value = old.dtype
    encoder = load_encoder(values.encoder, kind=values.kind)
    cache = write_cache(
        values.output,
        texts,
        encoder.encode_candidates,
        fingerprint=encoder.fingerprint,
        name=encoder.name,
        **same(values, "dtype batch_size overwrite"),
    )
    print(f"wrote {values.output}: {cache.count:,} candidates, {cache.dim} × {cache.dtype}")
