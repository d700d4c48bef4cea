"""Measure how much attention a poly-encoder pays to each context vector before training.

```
python benchmarks/poly_attention.py --trunk MiniLM/ --data valid_self_original.txt \\
    --max_examples 40 --poly_variant first_m --poly_codes 64
```

The candidate that attends is the correct response (arXiv 1905.01969 §4.4). The script prints the
mean attention weights of the first context vector and of the vector with the largest weight.
"""

import numpy as np
from absl import app, flags

from convert_tf.config.ranker import POLY_VARIANTS, HeadConfig
from convert_tf.intents.head import softmax

_TRUNK = flags.DEFINE_string("trunk", None, "Hugging Face folder of a BERT.", required=True)
_DATA = flags.DEFINE_string("data", None, "File with contexts and candidates.", required=True)
_EXAMPLES = flags.DEFINE_integer("max_examples", 40, "Number of contexts.")
_VARIANT = flags.DEFINE_enum("poly_variant", "first_m", POLY_VARIANTS, "Kind of context vectors.")
_CODES = flags.DEFINE_integer("poly_codes", 64, "Number of context vectors.")
_TOKENS = flags.DEFINE_integer("max_context_tokens", 48, "Maximum number of tokens in a context.")


def main(argv: list[str]) -> None:
    del argv
    from convert_tf.checkpoints.loading import initial_ranker
    from convert_tf.data.candidates import read_examples
    from convert_tf.data.ranking_batches import tokenize_examples
    from convert_tf.ranking.checkpoint import make_tokenize

    head = HeadConfig(head="poly", poly_variant=_VARIANT.value, poly_codes=_CODES.value)
    ranker, vocabulary = initial_ranker(_TRUNK.value, head)
    examples = tokenize_examples(
        read_examples(_DATA.value, "test", max_examples=_EXAMPLES.value),
        make_tokenize(vocabulary, ranker.config),
        max_context_tokens=_TOKENS.value,
        max_candidate_tokens=40,
    )
    weights = []
    for number in range(examples.num_examples):
        context = examples.contexts.take(np.array([number])).flat[None]
        response = examples.pool.take(examples.right(number)[:1]).flat[None]
        vectors, mask = map(np.asarray, ranker.encode_contexts(context))
        products = vectors[0][mask[0]] @ np.asarray(ranker.encode_candidates(response))[0]
        weights.append(softmax(products * ranker.head.scale))
    first = np.mean([row[0] for row in weights])
    largest = np.mean([row.max() for row in weights])
    print(
        f"{len(weights)} contexts, {_VARIANT.value} with {_CODES.value} codes: mean attention "
        f"weight of the first vector {first:.4f}, of the vector with the largest weight "
        f"{largest:.4f}"
    )


if __name__ == "__main__":
    app.run(main)
