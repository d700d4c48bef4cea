"""A dual encoder's training run, as `train.py` starts it."""

import contextlib
import dataclasses
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import keras
from keras import ops

from convert_tf.checkpoints import folder as checkpoint
from convert_tf.checkpoints.released import model_path
from convert_tf.config.base import DATA
from convert_tf.config.model import ModelConfig
from convert_tf.config.train import EncoderTraining
from convert_tf.data.unknown_tokens import unknown_share, warn_of_unknown
from convert_tf.models.distillation import initial_rows
from convert_tf.models.encoder import DualEncoder, count_parameters
from convert_tf.numerics.initializers import set_seed
from convert_tf.storage.checksums import file_checksum
from convert_tf.training.curve import ranking_curve
from convert_tf.training.encoder.distillation import DistillationData
from convert_tf.training.encoder.evaluation import evaluate_encoder
from convert_tf.training.encoder.objective import ResponseRanking, make_ranking_model
from convert_tf.training.encoder.sources import (
    make_batches,
    open_data,
    open_negatives,
    open_splits,
    trained_examples,
)
from convert_tf.training.kind import RunKind
from convert_tf.training.optimizers import learning_rate_schedule
from convert_tf.training.processes import (
    Processes,
    leaving_at_once,
    running_processes,
    spread_over_devices,
)
from convert_tf.training.run import carry_out, only_run_in
from convert_tf.training.state import newest_checkpoint

_DRAWN = ("R100@1", "context/R100@1", "extra_context/R100@1", "with_history/R100@1")


def train(
    model: ModelConfig | None,
    training: EncoderTraining,
    *,
    output: str,
    vocabulary: str | None = None,
    init_from: str | None = None,
) -> Path:
    """Trains a dual encoder, or goes on with a run that was stopped.

    Args:
      model: the model; `vocab_size` and `tokenizer` are taken from the vocabulary. None
        takes the model of `init_from`.
      training: how it is trained, and on what.
      output: the run's folder. When it holds checkpoints, training goes on from the newest.
      vocabulary: vocabulary file; None takes the one of `init_from` or of a folder of token ids.
      init_from: a model directory, a module, or its name, whose weights are the initial ones
        (fine-tuning).

    Returns:
      `output`, a model directory with the best weights on the first evaluation split.

    Raises:
      ValueError: bad data, another run in this folder, a vocabulary or checkpoint that does not
        match (`CheckpointError`).
      FloatingPointError: the loss or a weight became NaN; the last checkpoint is kept.
      OSError: a file cannot be read or written.

    On SIGTERM the state is saved after the step that runs, and this returns. Of several processes
    (`processes.join_processes`) all do where one is told to end.
    """
    init_from = model_path(init_from) if init_from else None
    processes = running_processes()
    with contextlib.ExitStack() as held:
        held.enter_context(leaving_at_once(processes))
        if not processes.is_first:  # process 0 prints for all
            held.enter_context(contextlib.redirect_stdout(io.StringIO()))
        with processes.together():
            set_seed(training.seed)
            run = EncoderRun(
                model,
                training,
                output=output,
                vocabulary=vocabulary,
                init_from=init_from,
                processes=processes,
            )
            devices = spread_over_devices(
                processes, batch_size=training.micro_batch or training.batch_size
            )
            held.enter_context(devices)
            if processes.is_first:
                held.enter_context(only_run_in(run.folder))
        return carry_out(run)


class EncoderRun(RunKind[ResponseRanking]):
    """The run of a dual encoder; see `train` for its arguments."""

    config: EncoderTraining
    decides_order = frozenset(
        ("batch_size", "seed", "data", "train_examples", "first_train_example",
         "source_shares", "shuffle_buffer", "utterances", "utterances_per_pair")
    )  # fmt: skip

    def __init__(
        self,
        model: ModelConfig | None,
        config: EncoderTraining,
        *,
        output: str,
        vocabulary: str | None,
        init_from: str | None,
        processes: Processes,
    ):
        if config.start_from_teacher and init_from is not None:
            raise ValueError(
                "The subword table starts from a checkpoint or from the teacher. Received: "
                f"init_from {init_from!r} and start_from_teacher. Leave one of them away."
            )
        folder, self.model_config = open_data(config.data, vocabulary, model, init_from)
        if config.history_only and newest_checkpoint(Path(output)) is None:
            _check_start_of_history(init_from, self.model_config)
        if config.row_tokens < self.model_config.max_tokens:
            raise ValueError(
                "A packed row must hold the longest text. Received: row_tokens "
                f"{config.row_tokens}, max_tokens {self.model_config.max_tokens}. Raise "
                "--row_tokens."
            )
        super().__init__(
            output,
            config,
            {"model": self.model_config, "train": config},
            vocabulary=folder.vocabulary,
            tokenizer=folder.tokenizer_name,
            processes=processes,
        )
        self.init_from = init_from
        self.similarity_map: Any = None
        self.learning_rate = learning_rate_schedule(config)
        self.examples = open_splits(folder, self.model_config, config)
        examples = self.examples["train"]
        self.unknown_share = unknown_share(examples, folder.vocab_size)
        warn_of_unknown(self.unknown_share, folder.vocabulary, f"the texts of {config.data}")
        self.padding_id = examples.padding_id
        self.trained_on = trained_examples(examples, config)
        self.negatives = open_negatives(examples, config)
        self.distilled = DistillationData(
            folder, examples, self.trained_on, model=self.model_config, config=config
        )

    def changes_of_model(self, checkpoint_folder: Path) -> dict[str, tuple[Any, Any]]:
        return checkpoint.load_config(checkpoint_folder).differences(self.model_config)

    def facts_to_agree_on(self, resume_from: Path | None) -> Any:
        sizes = {split: opened.num_examples for split, opened in self.examples.items()}
        initial = _checksums(self.init_from) if self.init_from and resume_from is None else []
        # Hosts may have the data at different places.
        config = dataclasses.replace(self.config, data="")
        return self.model_config, config, sizes, self.trained_on.num_examples, initial

    def make_model(self) -> ResponseRanking:
        config = self.config
        encoder = DualEncoder(
            self.model_config,
            embedding_dropout=config.embedding_dropout,
            attention_dropout=config.attention_dropout,
            dtype=self.precision,
        )
        sizes = count_parameters(encoder)
        if config.history_only:
            encoder.freeze_all_but_history()
        print(
            f"precision {self.precision} (backend {keras.backend.backend()}); "
            f"{sizes['embedding'] / 1e6:.1f} M embedding and {sizes['network'] / 1e6:.1f} M "
            "network parameters"
        )
        of_data = config.group(DATA)
        self.facts = {
            "precision": self.precision,
            "parameters": sizes,
            "train": {name: v for name, v in config.to_dict().items() if name not in of_data},
            "data": of_data,
            "unknown_tokens": round(self.unknown_share, 4),
        }
        teacher_dim = 0
        if self.distilled.targets is not None:
            self.facts["teacher"] = self.distilled.targets.vectors.teacher
            teacher_dim = self.distilled.targets.vectors.dim
        if self.distilled.ranking is not None:
            self.facts["ranking_teacher"] = self.distilled.ranking.teacher
            if self.distilled.ranking.joined_sources:
                self.facts["ranking_joined_sources"] = self.distilled.ranking.joined_sources
        return make_ranking_model(
            encoder, config, precision=self.precision, teacher_dim=teacher_dim
        )

    def begin(self, model: ResponseRanking) -> None:
        if self.init_from is not None:
            self.facts["initial_weights"] = str(self.init_from)
            checkpoint.load_initial_weights(model.encoder, self.init_from)
            self._keep_similarity(checkpoint.training_facts(self.init_from), self.init_from)
            if model.distillation:
                self._start_projection(model, self.init_from)
        if self.distilled.targets is not None and self.config.start_from_teacher:
            rows = initial_rows(
                self.distilled.targets.vectors.subwords,
                self.model_config.embedding_dim,
                seed=self.config.seed,
            )
            model.encoder.trunk.embedding.start_from(rows)

    def resume(self, facts: dict[str, Any]) -> None:
        if facts.get("initial_weights") is not None:
            self.facts["initial_weights"] = facts["initial_weights"]
        self._keep_similarity(facts, self.folder)

    def open_batches(self) -> None:
        self.batches, self.eval_sets = make_batches(
            self.examples,
            self.trained_on,
            self.config,
            processes=self.processes,
            teachers=self.distilled.columns,
            negatives=self.negatives,
            utterances=self.distilled.utterances,
            precision=self.precision,
        )

    def batches_from(self, step: int) -> Iterable[dict[str, Any]]:
        self.batches.skip_batches = step
        return self.batches

    def count_step(self, logs: dict[str, Any]) -> int:
        return self.config.batch_size

    def evaluate(
        self,
        model: ResponseRanking,
        step: int,
        logs: dict[str, Any],
        rows: list[dict[str, Any]],
    ) -> dict[str, Any]:
        row: dict[str, Any] = {
            "pairs": step * self.config.batch_size,
            "ranking_loss": logs.get("ranking_loss"),
            "batch_accuracy": logs.get("batch_accuracy"),
            **{n: v for n, v in logs.items() if n.endswith(("_ranking_loss", "_batch_accuracy"))},
        }
        for split, batches in self.eval_sets.items():
            found = row[split] = evaluate_encoder(model.encoder, batches)
            self.say(
                f"step {step}  {split} R100@1 {100 * found['R100@1']:.2f} %  "
                f"MRR {found['MRR']:.4f}  ({found['examples']} examples)"
                + "".join(
                    f"  {name.removesuffix('/R100@1')} {100 * value:.2f} %"
                    for name, value in found.items()
                    if name.endswith("/R100@1")
                )
            )
        return row

    def score(self, row: dict[str, Any]) -> float | None:
        first = next(iter(self.eval_sets), None)
        return row[first]["R100@1"] if first in row else None

    def beside_weights(self, model: ResponseRanking) -> dict[str, Any]:
        written = {}
        if self.similarity_map is not None:
            written["similarity_map"] = self.similarity_map
        if not model.distillation:
            return written
        kernel = ops.convert_to_numpy(model.teacher_projection.kernel)
        written["teacher_projection"] = kernel
        if self.processes.number == 1 and self.distilled.targets is not None:
            written["similarity_map"] = self.distilled.targets.similarity_map(
                model.encoder, kernel, row_tokens=self.config.row_tokens
            )
        return written

    def curve(self, rows: list[dict[str, Any]]) -> bytes:
        if self.config.history_only:  # the loss of the context alone does not change
            rows = [{**row, "ranking_loss": row.get("both_ranking_loss")} for row in rows]
        return ranking_curve(rows, list(self.eval_sets), _DRAWN)

    def _keep_similarity(self, facts: dict[str, Any], folder: str | Path) -> None:
        """Takes the map to vectors for similarity over, where this run learns none.

        Where r changes, what was measured of the map is not said of it any more.
        """
        if self.config.distillation and self.processes.number == 1:
            return
        self.similarity_map = checkpoint.load_similarity_map(folder)
        if self.config.history_only:
            kept = ("teacher", "similarity")
            self.facts |= {name: facts[name] for name in kept if name in facts}

    def _start_projection(self, model: ResponseRanking, init_from: str) -> None:
        """Has the map to the teacher's vectors start as that of the run that is gone on from.

        A random one would undo, in the first steps, what that run has learnt. Where there is none,
        as beside a module, one is fitted to some of the texts that are trained on.
        """
        taught = self.distilled.targets
        if taught is None:
            return
        kernel = model.teacher_projection.kernel
        known = checkpoint.load_teacher_projection(init_from, taught.vectors.teacher)
        if known is not None and known.shape == kernel.shape:
            kernel.assign(known)
            print(f"the map to the teacher's vectors starts as in {init_from}")
        elif self.processes.number > 1:  # none of them computes with the variables of all
            print(
                f"the map to the teacher's vectors starts anew: {init_from} has none, and several "
                "processes fit none"
            )
        else:
            kernel.assign(taught.projection(model.encoder, row_tokens=self.config.row_tokens))
            print("the map to the teacher's vectors is fitted to texts that are trained on")


def _check_start_of_history(init_from: str | None, model: ModelConfig) -> None:
    """Refuses a start that does not have all that `history_only` leaves as it is."""
    blocks = len(model.max_relative_attention)
    if init_from is None:
        found = "no init_from"
    else:
        found = f"init_from {str(init_from)!r}"
        own = len(checkpoint.load_config(init_from).max_relative_attention)
        if own == blocks:
            return
        found += f" with {own} blocks for {blocks}"
    raise ValueError(
        "Where the networks of the earlier turns are trained alone, all others are trained "
        f"already. Received: history_only, and {found}. Give --init_from a model of as many "
        "blocks, or leave --history_only away."
    )


def _checksums(init_from: str) -> list[str]:
    projection = Path(init_from) / checkpoint.PROJECTION_FILE
    files = [*checkpoint.weights_files(init_from), projection]
    return [file_checksum(path) for path in files if path.is_file()]
