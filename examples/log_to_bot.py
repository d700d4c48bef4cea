"""# From a log to a bot

A shop has a log of messages but no intents. This script finds groups in the log, chooses messages
to label, and trains a classifier. Then it evaluates, serves and monitors the classifier. In the
second week, customers ask about something new, and the classifier gets an intent for it. The
messages are generated from a fixed seed. If you have files, each step is one command of
`convert-tf intent` or `convert-tf serve`, given in the comments.
"""

import random
from pathlib import Path

from convert_tf import IntentClassifier, discover_intents
from convert_tf.intents.data import LabelledTexts
from convert_tf.intents.monitor import monitor_messages, monitoring_text
from convert_tf.intents.predictor import answer_texts
from convert_tf.intents.report import evaluate_classifier, report_text
from convert_tf.intents.suggest import suggest_messages

THINGS = ("kettle", "lamp", "blue chair", "phone case", "winter coat", "desk", "bicycle", "radio")
QUESTIONS = {
    "delivery": ("where is my {}?", "when will the {} arrive?", "my {} has not come yet",
                 "has the {} left the warehouse?", "the delivery of my {} is late"),
    "refund": ("I want my money back for the {}", "please refund the {}", "can I return the {}?",
               "how do I send the {} back?", "I would like a refund for my {}"),
    "broken": ("the {} does not work", "my {} is broken", "the {} arrived damaged",
               "there is a crack in my {}", "the {} stopped working after a day"),
    "stock": ("do you sell a {}?", "is the {} in stock?", "when can I buy the {} again?",
              "is the {} still available?", "do you have the {} in the shop?"),
    "repair": ("can you repair my {}?", "who fixes a {}?", "do you have spare parts for the {}?",
               "how much is a repair of the {}?", "I need a new part for my {}"),
}  # fmt: skip
ORDER = "my order number is {}, mail me at {}@mail.example"


def week(number: int, intents: list[str], size: int) -> dict[str, str]:
    """Generate the messages of a week, each with the intent that a person would give it."""
    rng = random.Random(11 + number)
    found = {}
    while len(found) < size:
        intent = rng.choice(intents)
        text = rng.choice(QUESTIONS[intent]).format(rng.choice(THINGS))
        if rng.random() < 0.05:
            text += " " + ORDER.format(rng.randrange(10**6), rng.choice(("ann", "bob", "eve")))
        found[text] = intent
    return found


# 1. Discover: convert-tf intent discover --input week1.txt --mask --output groups/
first = week(1, ["delivery", "refund", "broken", "stock"], 240)
found = discover_intents(list(first), "convert_small", mask=True)
print(f"{found['messages']} messages are in {len(found['groups'])} groups")
for group in found["groups"][:3]:
    print(f"{group['size']:4}  {', '.join(group['words'])}: {group['texts'][0]}")

# 2. Label: convert-tf intent suggest --input week1.txt --budget 60 --output to_label.csv
# A person fills in the label column. Here the labels come from the generator.
texts = suggest_messages(list(first), "convert_small", budget=60)
examples = LabelledTexts(texts, [first[text] for text in texts])

# 3. Train: convert-tf intent train --data to_label.csv --out_of_scope=confidence --output model/
classifier = IntentClassifier("convert_small", head="logistic", out_of_scope="confidence")
classifier.fit(*examples)
classifier.save("model", overwrite=True)

# 4. Evaluate: convert-tf intent evaluate --model model/ --data test.csv
others = [text for text in first if text not in texts]
report = evaluate_classifier(classifier, LabelledTexts(others, [first[text] for text in others]))
print(report_text(report).splitlines()[0])

# 5. Serve: convert-tf serve --intents model/ gives this answer to POST /classify.
print(answer_texts(classifier, ["hello, my lamp has not arrived"])[0].described())

# 6. Monitor: convert-tf intent monitor --model model/ --input week2.txt --since week1.json …
earlier = monitor_messages(list(first), classifier, mask=True)
second = week(2, [*QUESTIONS, "repair"], 240)
report = monitor_messages(list(second), classifier, since=earlier, mask=True)
print(monitoring_text(report, shown=4))

# 7. Add: convert-tf intent train --model model/ --data new.csv --output model2/
texts = suggest_messages(list(second), classifier=classifier, budget=40)
labels = [second[text] for text in texts]
better = IntentClassifier("convert_small", head="logistic", out_of_scope="confidence")
better.fit([*examples.texts, *texts], [*examples.labels, *labels])
left = [text for text in second if text not in texts]
for name, model in (("before", classifier), ("after", better)):
    print(f"{name}: {model.score(left, [second[text] for text in left]):.0%} of week 2 is right")
better.save(Path("model2"), overwrite=True)
