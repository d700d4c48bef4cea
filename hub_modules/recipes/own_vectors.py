"""Write an encoder's own vectors for single texts, as a teacher for its further training.

    python hub_modules/recipes/own_vectors.py convert_small/2 few_text_ids_12000/ own_vectors/

With these vectors as `--utterance_teacher`, training keeps the encodings of the texts close to what
they were. The cosine of two of the vectors is 0.8 times the cosine of the similarity vectors plus
0.2 times the cosine of the reduced encodings r.
"""

import functools
import sys

from convert_tf import SentenceEncoder
from convert_tf.numerics.vectors import unit_rows
from convert_tf.training.teaching.teacher import join_teachers
from convert_tf.training.teaching.vectors import write_teacher_vectors

_WEIGHTS = {"similarity": 4.0, "reduced": 1.0}


def main(name: str, token_ids: str, output: str) -> None:
    encoder = SentenceEncoder(name)

    def vectors(texts, kind):
        return unit_rows(encoder.encode(texts, kind=kind))

    teachers = [functools.partial(vectors, kind=kind) for kind in _WEIGHTS]
    teacher = join_teachers(teachers, [*_WEIGHTS.values()])
    write_teacher_vectors(token_ids, output, teacher=teacher, name=name)


if __name__ == "__main__":
    main(*sys.argv[1:])
