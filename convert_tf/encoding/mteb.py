"""Encoders on the tasks of mteb; needs `pip install 'convert_tf[mteb]'`."""

import os
from typing import Any

import numpy as np

from convert_tf.encoding.sentence_encoder import SentenceEncoder
from convert_tf.extras import needs

with needs("mteb", "MtebEncoder"):
    from mteb.models import ModelMeta
    from mteb.models.abs_encoder import AbsEncoder
    from mteb.models.model_meta import ScoringFunction


class MtebEncoder(AbsEncoder):
    """A trained model as mteb evaluates it: by what `encode` gives, of which cosines are taken.

    Args:
      model: as of `SentenceEncoder`, or one.
      name: of the model in mteb's results, `organization/model`.
      revision: of the model there; results of one revision are not computed again.

    Attributes:
      model: the `SentenceEncoder`.
      mteb_model_meta: what results say of the model. What its training read, mteb cannot know.

    Raises:
      ValueError: the model is none.

    Example:
      tasks = mteb.get_tasks(tasks=["Banking77Classification"])
      mteb.evaluate(MtebEncoder("convert_small"), tasks)
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | SentenceEncoder,
        *,
        name: str = "convert_tf/convert",
        revision: str = "1",
    ):
        self.model = model if isinstance(model, SentenceEncoder) else SentenceEncoder(model)
        unknown = dict.fromkeys(
            ("loader", "release_date", "n_parameters", "memory_usage_mb", "max_tokens", "license",
             "open_weights", "public_training_code", "public_training_data", "training_datasets")
        )  # fmt: skip
        self.mteb_model_meta = ModelMeta(
            name=name,
            revision=revision,
            languages=["eng-Latn"],
            embed_dim=self.model.get_embedding_dimension(),
            framework=["TensorFlow"],
            similarity_fn_name=ScoringFunction.COSINE,
            use_instructions=False,
            **unknown,
        )

    def encode(
        self,
        inputs: Any,
        *,
        task_metadata: Any,
        hf_split: str,
        hf_subset: str,
        prompt_type: Any = None,
        **options: Any,
    ) -> np.ndarray:
        """Encodes what mteb loads.

        Args:
          inputs: batches, each a mapping with a list of str under `text`.
          task_metadata, hf_split, hf_subset, prompt_type: of the task; the vectors of all are the
            same.
          **options: of `SentenceEncoder.encode`.

        Returns:
          float32 `[texts, reduced_dim]`.
        """
        texts = [text for batch in inputs for text in batch["text"]]
        return self.model.encode(texts, **options)
