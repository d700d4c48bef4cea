"""Measure the recall of approximate search when most candidates are copies of a few texts.

```
python benchmarks/duplicates.py --encoder convert_small
```

The candidates are 600 numbered sentences, the lines of `responses.txt`, and three canned
answers, each of which is repeated `--copies` times. The queries are the lines of `responses.txt`
and three more. A search is a hit if it finds a candidate with the same score as the best candidate
of exact search. If the encoder gives copies equal scores, any copy counts.
"""

import tempfile
from pathlib import Path

import numpy as np
from absl import app, flags

from convert_tf.search.cache import write_cache
from convert_tf.search.encoders import load_encoder
from convert_tf.search.index import FAISS_KINDS, CandidateIndex, FaissIndex

_ENCODER = flags.DEFINE_string("encoder", "convert_small", "Encoder for candidates and queries.")
_COPIES = flags.DEFINE_integer(
    "copies", 1467, "Number of copies of each canned answer.", lower_bound=1
)

CANNED = (
    "You're welcome!",
    "Is there anything else I can help you with?",
    "Thanks for contacting us, an agent will be with you shortly.",
)


def main(_) -> None:
    queries = Path(__file__).with_name("responses.txt").read_text().splitlines()
    queries += ["thank you so much", "are you there?", "that was all"]
    texts = [f"Please go to page {n} of the manual and read section {n % 7}." for n in range(600)]
    texts += queries[:40] + _COPIES.value * [*CANNED]
    np.random.default_rng(0).shuffle(texts)
    encoder = load_encoder(_ENCODER.value)
    with tempfile.TemporaryDirectory() as folder:
        cache = write_cache(
            f"{folder}/cache", texts, encoder.encode_candidates, fingerprint=encoder.fingerprint
        )
        exact = CandidateIndex(cache, encoder).search(queries, top_k=3).scores[:, 0]
        print(f"{cache.count:,} candidates, {len({*texts}):,} texts, {len(queries)} queries")
        for kind in FAISS_KINDS:
            ids, scores = FaissIndex(cache, encoder, kind=kind).search(queries, top_k=3)
            right = (scores[:, 0] >= exact - 1e-5).mean()
            print(f"{kind:5} best found {right:6.1%}, nothing found {(ids[:, 0] < 0).mean():6.1%}")


if __name__ == "__main__":
    app.run(main)
