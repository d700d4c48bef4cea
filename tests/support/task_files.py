"""Small files in the published formats of the papers' tasks. All texts are our own."""

import itertools
import json

PERSONA = ["your persona: i bake bread.", "your persona: my dog is called ada."]
TURNS = [
    ("hello , what do you do ?", "i bake bread every morning ."),
    ("do you have a pet ?", "a dog called ada ."),
]
OTHERS = ["it is raining .", "see you tomorrow !", "i never sing ."]


def convai2(*, candidates=True, dialogues=2) -> list[str]:
    """Return lines of ConvAI2: two replies per dialogue, with four candidates each."""
    lines = []
    for dialogue in range(dialogues):
        texts = [*PERSONA]
        for message, reply in TURNS:
            text = f"{message} {dialogue}\t{reply}"
            texts.append(text + ("\t\t" + "|".join([*OTHERS, reply]) if candidates else ""))
        lines += [f"{number} {text}" for number, text in enumerate(texts, 1)]
    return lines


def dstc7_items(number=2, *, num_candidates=4, fewer_in=()) -> list[dict]:
    """Return DSTC7 items; the second candidate is correct. Those in `fewer_in` lack the last."""
    return [
        {
            "data-split": "train",
            "example-id": 100 + item,
            "messages-so-far": [
                {"speaker": "participant_1", "utterance": f"the disk {item} is full"},
                {"speaker": "participant_2", "utterance": "which one ?"},
            ],
            "options-for-correct-answers": [
                {"candidate-id": f"C{item}1", "utterance": f"answer {item}1"}
            ],
            "options-for-next": [
                {"candidate-id": f"C{item}{place}", "utterance": f"answer {item}{place}"}
                for place in range(num_candidates - (item in fewer_in))
            ],
        }
        for item in range(number)
    ]


def dstc7(items) -> str:
    return json.dumps(items, indent=1)


def labelled_turns(examples=2, *, candidates=4) -> list[str]:
    """Return lines in the format of SMN and DAM. The first candidate is correct."""
    return [
        f"{int(place == 0)}\tmy screen {example} is black\tis it on ?\tanswer {example}{place}"
        for example in range(examples)
        for place in range(candidates)
    ]


ARTICLES = [
    ["Ada is a dog.", "She likes bread.", "She barks."],
    ["Bread is baked.", "It is made of flour."],
    ["A disk stores data.", "It may be full.", "It turns.", "It is flat."],
]


def articles() -> list[str]:
    return ["\t".join(sentences) for sentences in ARTICLES]


WIKIQA_HEADER = "QuestionID\tQuestion\tDocumentID\tDocumentTitle\tSentenceID\tSentence\tLabel"
# Question, sentence, label. The second question has no correct sentence, the third has two.
WIKIQA_ROWS = [
    ("who is ada ?", 'Ada is "a dog.', 1),
    ("who is ada ?", "Ada was a poet.", 0),
    ("what is rain ?", "Rain is old.", 0),
    ("what is bread ?", "Bread is baked.", 1),
    ("what is bread ?", "Bread sings.", 0),
    ("what is bread ?", "It is made of flour.", 1),
]


def wikiqa_txt() -> list[str]:
    return [f"{question}\t{sentence}\t{label}" for question, sentence, label in WIKIQA_ROWS]


def wikiqa_tsv() -> list[str]:
    lines = [WIKIQA_HEADER]
    questions = itertools.groupby(WIKIQA_ROWS, key=lambda row: row[0])
    for place, (question, rows) in enumerate(questions, 1):
        lines += [
            f"Q{place}\t{question}\tD{place}\tTitle\tD{place}-{number}\t{sentence}\t{label}"
            for number, (_, sentence, label) in enumerate(rows)
        ]
    return lines


def ubuntu_csv(examples=2, *, distractors=3) -> list[str]:
    """Return lines of Ubuntu V2's validation and test files."""
    names = ["Context", "Ground Truth Utterance", *(f"Distractor_{i}" for i in range(distractors))]
    rows = [
        [f'"my screen, {example} __eou__ is black __eou__ __eot__ is it on ? __eou__ __eot__"']
        + [f"answer {example}{place} __eou__" for place in range(distractors + 1)]
        for example in range(examples)
    ]
    return [",".join(row) for row in [names, *rows]]


UBUNTU_TRAIN = [
    "Context,Utterance,Label",
    "is it open ? __eou__ __eot__,until nine __eou__,1",
    "is it open ? __eou__ __eot__,i have a cat __eou__,0",
    "who is it ? __eou__ __eot__,a pool __eou__,0",
    "where is it ? __eou__ __eot__ here __eou__ __eot__,thanks __eou__ bye __eou__,1.0",
]
