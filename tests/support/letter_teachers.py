"""Teachers that count letters, and folders of their vectors."""

import itertools

import numpy as np

from convert_tf.data.teacher_vectors import TeacherVectors
from convert_tf.data.token_arrays import ArrayFolder
from convert_tf.training.teaching.vectors import write_teacher_vectors

DIM = 12


def unit(shape, seed=0):
    x = np.random.default_rng(seed).standard_normal(shape).astype("float32")
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def letters_teacher(texts):
    """Return normalised, rotated letter counts: texts with equal counts get equal vectors."""
    counts = np.array([[1 + text.count(chr(97 + i)) for i in range(26)] for text in texts])
    turned = counts @ unit((26, DIM), seed=3)
    return turned / np.linalg.norm(turned, axis=1, keepdims=True)


def backwards(texts):
    return letters_teacher(texts)[:, ::-1]


SIDES = {"context": letters_teacher, "response": backwards}


def noting(calls):
    """Return a `letters_teacher` that appends the texts of each call to `calls`."""

    def teach(texts):
        calls.append(texts)
        return letters_teacher(texts)

    return teach


def interrupted(teach, *, after):
    """Return a teacher like `teach` that is interrupted after this many calls."""
    calls = itertools.count()

    def stopping(texts):
        if next(calls) == after:
            raise KeyboardInterrupt
        return teach(texts)

    return stopping


def write_vectors(token_ids, output, teach, *, name="letters", **options):
    write_teacher_vectors(str(token_ids), str(output), teacher=teach, name=name, **options)


def opened_vectors(token_ids, folder, **options) -> TeacherVectors:
    """Open the teacher vectors of the training pairs."""
    ids = ArrayFolder(token_ids)
    examples = ids.open("train", max_tokens=60)
    return TeacherVectors(folder, examples, vocab_size=ids.vocab_size, **options)
