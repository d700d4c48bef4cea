"""Random short texts, for tests that need no model."""

import numpy as np

SENTENCE = (
    "how are you do i reset my password please what time is it the cat sat on mat where can find "
    "help with order bank card lost today tomorrow train late thanks for your answer yes no maybe"
)
WORDS = SENTENCE.split()


def random_texts(number: int, *, seed: int = 0) -> list[str]:
    """Return random sequences of 1 to 12 words."""
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, rng.integers(1, 13))) for _ in range(number)]
