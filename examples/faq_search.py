"""# Search in frequent questions

A table has questions with answers, and a user asks a question in other words. This script scores
each entry of the table in two ways: how similar its question is to the new question, and how well
its answer fits as a response to the new question. Both scores are cosines. The entry with the
highest mean of the two is returned.
"""

import numpy as np

from convert_tf import SentenceEncoder

FAQ = {
    "How do I change my password?": "Open Settings, then Security, and choose Change password.",
    "When will my order arrive?": "Orders arrive within two to four working days.",
    "How do I send something back?": "Print the label under My orders and post the parcel.",
    "Do you deliver abroad?": "We deliver to all countries of the European Union.",
    "How can I pay?": "By card, by bank transfer or on delivery.",
    "How do I close my account?": "Write to us; we delete your account and data within a week.",
}

encoder = SentenceEncoder("convert_small")
questions, answers = list(FAQ), list(FAQ.values())


def unit(vectors):
    """Scale vectors to length 1."""
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


question_vectors = unit(encoder.encode(questions))
answer_vectors = encoder.encode_responses(answers)


def search(asked):
    """Return the best question, its answer, and its score."""
    likeness = question_vectors @ unit(encoder.encode(asked))
    follows = answer_vectors @ encoder.encode_contexts(asked)
    scores = (likeness + follows) / 2
    best = int(scores.argmax())
    return questions[best], answers[best], float(scores[best])


found = {
    asked: search(asked)
    for asked in (
        "i forgot my login, can i get a new one?",
        "how long until it arrives?",
        "these shoes are too small, i want to return them",
        "is shipping to france possible?",
    )
}
for asked, (question, answer, score) in found.items():
    print(f"{asked}\n  {score:.2f}  {question}  {answer}")

# For many answers, `convert-tf index build` stores their vectors on disk.
