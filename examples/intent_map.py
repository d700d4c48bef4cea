"""# A map of labelled examples

`convert-tf intent inspect` lists examples that look mislabelled. This script shows where they lie
on a map. t-SNE places examples with similar meanings near each other, and rings mark the examples
that look mislabelled. Pass a CSV file with the columns text and label, or run the script on the
examples below.
"""

import sys

import numpy as np
from sklearn.manifold import TSNE

from convert_tf.intents.data import LabelledTexts, distinct_examples, read_labelled
from convert_tf.intents.encodings import IntentEncodings
from convert_tf.intents.inspection import inspect_examples

EXAMPLES = {
    "opening_hours": ["when do you open?", "are you open on Sunday?", "when do you close today?"],
    "refund": ["I want my money back", "refund my order, please", "are you open to a refund?"],
    "delivery": ["where is my parcel?", "has my order left?", "when will my package come?"],
    "complaint": ["my soup was cold", "the waiter was rude", "the parcel came broken"],
}
data = LabelledTexts(
    [text for texts in EXAMPLES.values() for text in texts],
    [label for label, texts in EXAMPLES.items() for _ in texts],
)
if len(sys.argv) > 1:
    data = read_labelled(sys.argv[1])

encodings = IntentEncodings("convert_small")
suspects = inspect_examples(encodings, data)["suspects"]
for row in suspects:
    print(f"{row['text']!r} is labelled {row['label']}, but nearer to {row['nearest']}")

vectors = encodings(data.texts)
perplexity = min(30, (len(vectors) - 1) / 3)
x, y = TSNE(metric="cosine", perplexity=perplexity, random_state=0).fit_transform(vectors).T
print(f"placed {len(x)} examples")

try:
    from matplotlib.figure import Figure
except ImportError:
    sys.exit("Drawing needs matplotlib: pip install matplotlib")

figure = Figure(figsize=(9, 7.5))
panel = figure.add_axes((0, 0, 1, 1))
panel.set_axis_off()
labels = np.array(data.labels)
for label in np.unique(labels):
    own = labels == label
    panel.scatter(x[own], y[own], s=10)
    panel.text(np.median(x[own]), np.median(y[own]), label, fontsize=7, ha="center")
_, copy_of = distinct_examples(data.texts, data.labels)
rings = np.isin(copy_of, copy_of[[row["number"] for row in suspects]])  # with all copies
panel.scatter(x[rings], y[rings], s=50, facecolors="none", edgecolors="black")
figure.savefig("map.png", dpi=200)
print("wrote map.png")
