"""Write an encoder's own vectors for single texts, as a teacher for its further training.

    python hub_modules/recipes/own_vectors.py convert_small/2 few_text_ids_12000/ own_vectors/
    python hub_modules/recipes/own_vectors.py convert_small/2 few_text_ids_12000/ own_vectors/ minilm/

With these vectors as `--utterance_teacher`, training keeps the encodings of the texts close to what
they were. The cosine of two of the vectors is 0.8 times the cosine of the similarity vectors plus
0.2 times the cosine of the reduced encodings r. If a second teacher is given, such as the folder of
all-MiniLM-L6-v2, the cosine is 0.8 times this sum plus 0.2 times the second teacher's cosine.
"""

import functools
import sys

from convert_tf import SentenceEncoder
from convert_tf.numerics.vectors import unit_rows
from convert_tf.ranking.ranker import open_vectors
from convert_tf.training.teaching.teacher import join_teachers
from convert_tf.training.teaching.vectors import write_teacher_vectors

_WEIGHTS = {"similarity": 4.0, "reduced": 1.0}
_SECOND = 1.25  # a fifth of the sum of all weights


def main(name: str, token_ids: str, output: str, second: str | None = None) -> None:
    def vectors(texts, encoder, kind):
        return unit_rows(encoder.encode(texts, kind=kind))

    encoder = SentenceEncoder(name)
    teachers = [functools.partial(vectors, encoder=encoder, kind=kind) for kind in _WEIGHTS]
    weights = [*_WEIGHTS.values()]
    if second is not None:
        encoder, (kind, _) = open_vectors(second)
        teachers.append(functools.partial(vectors, encoder=encoder, kind=kind))
        weights.append(_SECOND)
        name = f"{name},{second}"
    teacher = join_teachers(teachers, weights)
    write_teacher_vectors(token_ids, output, teacher=teacher, name=name)


if __name__ == "__main__":
    main(*sys.argv[1:])
