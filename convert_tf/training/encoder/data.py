"""The data of a dual encoder's run: examples, teacher vectors, and the batches made of them."""

from pathlib import Path
from typing import Any

from convert_tf.checkpoints import folder as checkpoint
from convert_tf.config.model import ModelConfig
from convert_tf.config.train import EncoderTraining
from convert_tf.data.batches import EvaluationBatches, TrainingBatches
from convert_tf.data.packing import (
    ROW_TOKENS,
    compiled_row_multiple,
    padding_share,
    partly_compiled_row_multiple,
)
from convert_tf.numerics.devices import compiles_feed_forward, compiles_shapes
from convert_tf.training.encoder.distillation import DistillationData
from convert_tf.training.encoder.sources import (
    open_data,
    open_negatives,
    open_splits,
    share_of_unknown,
    trained_examples,
)
from convert_tf.training.processes import ALONE, Processes
from convert_tf.training.shares import rows_of_a_share
from convert_tf.training.state import newest_checkpoint


class RunData:
    """The data of a run: examples, teacher vectors, and the model that fits the vocabulary.

    Args:
      folder: the run's folder.
      others: as for `train`.

    Attributes:
      config: as given.
      source, model: the folder of the examples, and the model that fits its vocabulary.
      examples: the splits that the run reads.
      trained_on: the examples of the training split that are trained on.
      distilled: the parts that have teacher vectors.
    """

    def __init__(
        self,
        model: ModelConfig | None,
        config: EncoderTraining,
        folder: Path,
        *,
        vocabulary: str | None,
        init_from: str | None,
    ):
        self.config = config
        if config.start_from_teacher and init_from is not None:
            raise ValueError(
                f"The subword table can start from init_from {init_from!r} or from the teacher "
                "(start_from_teacher), not from both. Omit one of them."
            )
        self.source, self.model = open_data(config.data, vocabulary, model, init_from)
        if config.history_only and newest_checkpoint(folder) is None:
            _check_start_of_history(init_from, self.model)
        self.init_from = init_from
        self.examples = open_splits(self.source, self.model, config)
        examples = self.examples["train"]
        self.unknown_share = share_of_unknown(self.source, examples, config.data)
        self.trained_on = trained_examples(examples, config)
        self.negatives = open_negatives(examples, config)
        self.distilled = DistillationData(
            self.source, examples, self.trained_on, model=self.model, config=config
        )

    def facts(self) -> dict[str, Any]:
        """Facts about the data for checkpoints."""
        facts: dict[str, Any] = {"unknown_tokens": self.unknown_share}
        if self.distilled.targets is not None:
            facts["teacher"] = self.distilled.targets.vectors.teacher
        if self.distilled.ranking is not None:
            facts["ranking_teacher"] = self.distilled.ranking.teacher
        return facts

    def batches(
        self, *, precision: str = "float32", processes: Processes = ALONE
    ) -> tuple[TrainingBatches, dict[str, EvaluationBatches]]:
        """Return this process's training batches, and the batches of each evaluation split."""
        config, max_tokens = self.config, self.model.max_tokens
        trained_multiple = 1
        encoded = config.micro_batch or config.batch_size  # pairs at once
        if compiles_shapes():
            texts = len(self.trained_on.names)
            texts += config.negatives_per_pair if self.negatives else 0
            texts += config.utterances_per_pair if self.distilled.utterances else 0
            trained_multiple = compiled_row_multiple(texts * encoded)
        elif compiles_feed_forward(precision):
            trained_multiple = partly_compiled_row_multiple(encoded)
        eval_sets = {
            split: EvaluationBatches(
                self.examples[split], max_tokens, max_examples=config.eval_examples
            )
            for split in config.eval_splits
        }
        for split, packed in eval_sets.items():
            print(
                f"{100 * padding_share(packed):.1f} % of the packed tokens of {split} are padding"
            )
        batches = TrainingBatches(
            self.trained_on,
            batch_size=config.batch_size,
            row_tokens=max(ROW_TOKENS, max_tokens),
            shuffle_buffer=config.shuffle_buffer,
            micro_batches=config.num_micro_batches,
            seed=config.seed,
            row_multiple=rows_of_a_share(trained_multiple, processes),
            part=(processes.index, processes.number),
            marks_duplicates=config.mask_duplicates,
            teachers=self.distilled.columns,
            negatives=self.negatives,
            utterances=self.distilled.utterances,
        )
        return batches, eval_sets


def _check_start_of_history(init_from: str | None, model: ModelConfig) -> None:
    """Raise `ValueError` if the initial model lacks a part that `history_only` does not train."""
    blocks = len(model.max_relative_attention)
    found = (
        0 if init_from is None else len(checkpoint.load_config(init_from).max_relative_attention)
    )
    if found != blocks:
        raise ValueError(
            "history_only trains only the networks of the earlier turns, so the other weights must "
            f"come from --init_from, a model with {blocks} blocks. Received: {init_from!r}, with "
            f"{found} blocks. Set --init_from to another one, or omit --history_only."
        )
