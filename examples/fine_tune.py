"""# Fine-tune on your own pairs

This script trains a released encoder further on pairs, such as the questions and answers of a help
desk, and exports the result as a module. The pairs here are made up, and there are only ten steps,
so that the script ends within a minute. With your own pairs, omit `--steps`.
"""

import csv
import subprocess
import sys

PRODUCTS = ["lamp", "kettle", "bicycle", "printer", "tent", "radio", "drill", "camera"]
FAULTS = {
    "does not switch on": "Check the fuse of the {}, and whether it is plugged in.",
    "makes a noise": "A noise of the {} goes away after the first hour.",
    "came without a manual": "The manual of the {} is on our site, under Downloads.",
    "has the wrong colour": "Send the {} back; we exchange it for the colour that you chose.",
}
with open("pairs.csv", "w", encoding="utf-8", newline="") as file:
    writer = csv.writer(file)
    writer.writerow(["question", "answer"])
    for product in PRODUCTS:
        for fault, answer in FAULTS.items():
            writer.writerow([f"My {product} {fault}.", answer.format(product)])


def run(*command):
    subprocess.run([sys.executable, "-m", "convert_tf", *command], check=True)


run(
    "train",
    "--data=pairs.csv",
    "--init_from=convert_small",
    "--output=run",
    "--learning_rate=1e-4",
    "--steps=10",
    "--batch_size=16",
    "--eval_every=10",
    "--checkpoint_every=10",
)
run("export", "--encoder=run", "--output=my_module/1", "--overwrite")

from convert_tf import SentenceEncoder  # noqa: E402

encoder = SentenceEncoder("my_module/1")
answers = [answer.format("kettle") for answer in FAULTS.values()]
((best, score),) = encoder.rank("My kettle came without a manual.", answers, top_k=1)
print(f"{score:.2f}  {best}")
