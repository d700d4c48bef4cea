import warnings

import numpy as np
import pytest

from convert_tf.data.unknown_tokens import checked_share


@pytest.mark.parametrize("tokenizer", ["subword", "wordpiece"])
def test_texts_that_a_vocabulary_hardly_knows_are_warned_of(tmp_path, tokenizer):
    """Ids after the vocabulary are unknown; `[UNK]` of WordPiece is an entry like others."""
    path = tmp_path / "vocab.txt"
    path.write_text("[PAD]\n[UNK]\na\n")
    unknown = {"subword": 3, "wordpiece": 1}[tokenizer]

    def share_of(*ids):
        what = {"tokenizer": tokenizer, "vocab_size": 3, "what": "the texts of data/"}
        return checked_share(np.array(ids, int), path, **what)

    with pytest.warns(UserWarning, match="60% of the tokens of the texts of data/ are unknown to"):
        assert share_of(unknown, unknown, unknown, 2, 2) == 0.6
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert share_of(unknown, 2) == 0.5
        assert share_of() == 0.0
