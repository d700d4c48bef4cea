"""# In a Rasa pipeline

Rasa 2.8 and 3.x load the modules with their components for the original ConveRT. This script writes
the files of a small bot. Run `rasa train nlu` on them in an environment with Rasa, which needs an
older Python and TensorFlow than convert_tf. The script also trains `IntentClassifier` on the same
`nlu.yml` and module, to show what results to expect.
"""

from pathlib import Path

from convert_tf import IntentClassifier, module_path
from convert_tf.intents.data import read_labelled

Path("nlu.yml").write_text(
    """version: "3.1"
nlu:
- intent: order
  examples: |
    - I would like a [pizza](dish)
    - two coffees, please
    - can I order the soup?
    - bring me the menu of the day
    - I'll take the salad
- intent: book
  examples: |
    - a table for four, please
    - can I book for [tonight](time)?
    - I want to reserve a place by the window
    - is there a table free on Sunday?
- intent: complain
  examples: |
    - the soup was cold
    - we have waited for an hour
    - this is not what I ordered
    - the waiter was rude
""",
    encoding="utf-8",
)
Path("config.yml").write_text(
    f"""language: en
pipeline:
- name: WhitespaceTokenizer
- name: ConveRTFeaturizer
  model_url: {module_path("convert_small")}
- name: DIETClassifier
  epochs: 100
""",
    encoding="utf-8",
)

classifier = IntentClassifier("convert_small").fit(*read_labelled("nlu.yml"))
messages = ["do you have room for six people?", "my steak is burnt", "I'll have the fish"]
for message, intent in zip(messages, classifier.predict(messages), strict=True):
    print(f"{intent:9s} {message}")
