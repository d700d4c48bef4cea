"""# Rerank the best candidates

A dual encoder finds the best of many candidates in milliseconds. A poly- or cross-encoder then
reads the context together with each of these candidates, and ranks them again. Both rankers start
from a released encoder and are trained on your own pairs. Here they train for only four steps on a
few pairs. This shows how to use them, but not how much they improve the ranking.
"""

import csv
import subprocess
import sys

from convert_tf import Ranker, SentenceEncoder

TOPICS = [
    "the train",
    "the match",
    "my exam",
    "the concert",
    "our flight",
    "the parcel",
    "lunch",
    "the film",
]
with open("pairs.csv", "w", encoding="utf-8", newline="") as file:
    writer = csv.writer(file)
    writer.writerow(["question", "answer"])
    for number in range(640):
        topic = TOPICS[number % 8]
        writer.writerow(
            [f"When is {topic} number {number}?", f"I think {topic} is at {number % 24}."]
        )


def run(*command):
    subprocess.run([sys.executable, "-m", "convert_tf", *command], check=True)


run("prepare", "--pairs=pairs.csv", "--output=data", "--dev_fraction=0.2")
for head, batch in (("poly", 16), ("cross", 4)):
    run(
        "train",
        f"--head={head}",
        "--init_from=convert_small",
        "--data=data",
        f"--output=run_{head}",
        "--steps=4",
        f"--batch_size={batch}",
        "--max_examples=32",
        "--eval_every=4",
        "--checkpoint_every=4",
    )

encoder = SentenceEncoder("convert_small")
candidates = [f"I think {topic} is at {hour}." for topic in TOPICS for hour in range(8)]
context = "When is the concert number 3?"
first = [text for text, _ in encoder.rank(context, candidates, top_k=10)]
for head in ("poly", "cross"):
    ranked = Ranker(f"run_{head}").rank(context, first)
    print(head, *(f"\n  {score:6.2f}  {text}" for text, score in ranked[:3]))
