"""Which classifier a folder holds."""

import os
from pathlib import Path
from typing import Any

from convert_tf.intents.classifier import IntentClassifier
from convert_tf.intents.folder import MODEL_FILE
from convert_tf.intents.multi import MultiIntentClassifier
from convert_tf.intents.stored import UNREADABLE, has_several
from convert_tf.storage.json_text import json_file


def load_classifier(
    folder: str | os.PathLike[str], *, encoder: Any = None
) -> IntentClassifier | MultiIntentClassifier:
    """Reads what `save` of either wrote; arguments and errors as in `read_classifier`."""
    is_multi = _has_several(Path(folder) / MODEL_FILE)
    kind = MultiIntentClassifier if is_multi else IntentClassifier
    return kind.load(folder, encoder=encoder)


def _has_several(path: Path) -> bool:
    try:
        return has_several(json_file(path))
    except UNREADABLE:  # told by who reads all of it
        return False
