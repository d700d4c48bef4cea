"""# A bot that recognises intents

This script trains a classifier on a few examples of each intent. If the classifier is not sure
about a message, the bot asks what the user means. The threshold for that is fitted to the examples
by cross-validation.
"""

from convert_tf import IntentClassifier

EXAMPLES = {
    "delivery": [
        "where is my parcel?",
        "has my order left the warehouse?",
        "when will the package get here?",
        "my parcel should have come yesterday",
    ],
    "refund": [
        "I want my money back",
        "how do I return these shoes?",
        "please refund the second ticket",
        "can I send this back for a refund?",
    ],
    "login": [
        "I forgot my password",
        "the site will not let me log in",
        "how do I change my password?",
        "my account is locked",
    ],
}
ANSWERS = {
    "delivery": "Your parcel is on its way; it arrives tomorrow.",
    "refund": "I have asked for the refund. It takes three days.",
    "login": "I have sent you a link with which you choose a new password.",
    "oos": "Do you ask about a delivery, a refund or your login?",
}

texts = [text for own in EXAMPLES.values() for text in own]
labels = [label for label, own in EXAMPLES.items() for _ in own]
classifier = IntentClassifier("convert_small", head="logistic", out_of_scope="confidence")
classifier.fit(texts, labels)

conversation = [
    "my package never came",
    "I can't get into my account",
    "the trousers don't fit, I'd like my money back",
    "what's the weather on Mars?",
]
intents = classifier.predict(conversation)
for text, intent in zip(conversation, intents, strict=True):
    print(f"> {text}\n{ANSWERS[intent]}")

# `convert-tf serve --encoder convert_small --intents bot_model` then answers over HTTP.
classifier.save("bot_model", overwrite=True)
