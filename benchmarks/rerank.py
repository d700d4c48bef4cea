"""Compare R100@1 of an encoder, of rankers that re-rank its best candidates, and of both.

```
python benchmarks/rerank.py --data data/ --encoder convert --rankers runs/poly,runs/cross
```

Each context is ranked among the 100 responses of its block. An encoder that reads history gets all
turns, and other encoders get the last turn. A ranker scores the encoder's `--top_n` best
candidates. It reads the last turn of the context, or all turns with `--all_turns`.

The rows `together` add the logits of encoder and ranker, as the flag `--rerank_checkpoint` of
`convert-tf index search` does. "At most" is the share of contexts whose correct response is among
the `--top_n` best candidates. A tie counts as a miss. The columns under "parts" show R100@1 for
each third of the examples.
"""

import time

import numpy as np
from absl import app, flags

_DATA = flags.DEFINE_string("data", None, "Folder of records.", required=True)
_SPLIT = flags.DEFINE_string("split", "dev", "Split of examples to rank.")
_ENCODER = flags.DEFINE_string("encoder", "convert", "Encoder that finds the candidates.")
_RANKERS = flags.DEFINE_list("rankers", [], "Folders of rankers: runs or modules.")
_TOP_N = flags.DEFINE_integer("top_n", 10, "Candidates to rank again.")
_EXAMPLES = flags.DEFINE_integer(
    "max_examples", 2_000, "Rank the first N examples, in blocks of 100."
)
_ALL_TURNS = flags.DEFINE_bool("all_turns", False, "Rankers read the earlier turns too.")

_BLOCK = 100


def main(argv: list[str]) -> None:
    from convert_tf import Ranker, SentenceEncoder
    from convert_tf.data.records import read_turns
    from convert_tf.ranking.ranker import EncoderRanker

    records = [*read_turns(_DATA.value, _SPLIT.value, max_examples=_EXAMPLES.value)]
    number = len(records) // _BLOCK * _BLOCK
    if not number:
        raise ValueError(f"{_DATA.value!r} has fewer than {_BLOCK} examples of {_SPLIT.value}.")
    turns = [tuple(record.turns) for record in records[:number]]
    responses = [record.response for record in records[:number]]
    encoder = EncoderRanker(SentenceEncoder(_ENCODER.value))
    shape = (number // _BLOCK, _BLOCK, -1)
    contexts = encoder.encode_contexts(turns).reshape(shape)
    encoded = encoder.encode_candidates(responses).reshape(shape)
    scores = np.einsum("bid,bjd->bij", contexts, encoded).reshape(number, _BLOCK)
    columns = np.arange(number) % _BLOCK
    right = scores[np.arange(number), columns].copy()
    scores[np.arange(number), columns] = -np.inf
    rank = (scores >= right[:, None]).sum(axis=1)
    scores[np.arange(number), columns] = right
    best = np.argsort(-scores, axis=1, kind="stable")[:, : _TOP_N.value]
    is_there = (best == columns[:, None]).any(axis=1)
    print(f"{number:,} contexts, the best {_TOP_N.value} of {_BLOCK}")
    print(f"at most {100 * is_there.mean():5.2f}%")
    print(f"{'':30}  R100@1  parts{'':17}  ms per context")
    print(f"{_ENCODER.value:30}  {_shown(rank == 0)}")
    starts = np.arange(number) // _BLOCK * _BLOCK
    lists = [[responses[i + j] for j in places] for i, places in zip(starts, best, strict=True)]
    read = turns if _ALL_TURNS.value else [context[-1:] for context in turns]
    is_right = best == columns[:, None]
    logits = encoder.logit_scale * np.take_along_axis(scores, best, axis=1)
    for folder in _RANKERS.value:
        ranker = Ranker(folder)
        ranker.candidate_scores(read[:8], lists[:8])
        started = time.perf_counter()
        scored = np.array(ranker.candidate_scores(read, lists))
        milliseconds = 1000 * (time.perf_counter() - started) / number
        print(f"{folder:30}  {_shown(_hits(scored, is_right))}  {milliseconds:.1f}")
        print(f"{'together':30}  {_shown(_hits(logits + scored, is_right))}", flush=True)


def _hits(scores: np.ndarray, is_right: np.ndarray) -> np.ndarray:
    """Return whether the correct candidate scores higher than all others: bool `[contexts]`."""
    right = np.where(is_right, scores, -np.inf).max(axis=1)
    return (right > -np.inf) & ((scores >= right[:, None]).sum(axis=1) == 1)


def _shown(hits: np.ndarray) -> str:
    """Format the share of hits among all examples and among each third."""
    parts = "  ".join(f"{100 * part.mean():5.2f}%" for part in np.array_split(hits, 3))
    return f"{100 * hits.mean():5.2f}%  {parts}"


if __name__ == "__main__":
    app.run(main)
