"""The training run of a dual encoder, as started by `train.py`."""

import contextlib
import dataclasses
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
from keras import ops

from convert_tf.checkpoints import folder as checkpoint
from convert_tf.checkpoints.released import model_path
from convert_tf.config.base import DATA
from convert_tf.config.model import ModelConfig
from convert_tf.config.train import EncoderTraining
from convert_tf.data.schema import Examples
from convert_tf.data.teacher_vectors import TeacherVectors
from convert_tf.models.distillation import fitted_map, initial_rows, similarity_map
from convert_tf.models.encoder import DualEncoder, count_parameters
from convert_tf.numerics.initializers import set_seed
from convert_tf.storage.checksums import file_checksum
from convert_tf.training.encoder.data import FITTED_EXAMPLES, RunData
from convert_tf.training.encoder.evaluation import evaluate_encoder
from convert_tf.training.encoder.objective import ResponseRanking, make_ranking_model
from convert_tf.training.loop import Batch, Run, carry_out, only_run_in
from convert_tf.training.processes import (
    Processes,
    agreed_precision,
    leaving_at_once,
    running_processes,
    spread_over_devices,
)
from convert_tf.training.summaries import LOSS, RECALL, curves
from convert_tf.training.teaching.similarity import taught_texts

_TURNED_EXAMPLES = 1_024  # whose encodings decide which numbers of vectors for similarity are first
_DRAWN = ("R100@1", "context/R100@1", "extra_context/R100@1", "with_history/R100@1")


def train(
    model: ModelConfig | None,
    training: EncoderTraining,
    *,
    output: str,
    vocabulary: str | None = None,
    init_from: str | None = None,
) -> Path:
    """Train a dual encoder, or resume a run that was stopped.

    Args:
      model: configuration of the model; `vocab_size` and `tokenizer` come from the vocabulary. None
        uses the model of `init_from`.
      training: options of training and of the data.
      output: the run's folder. If it has checkpoints, training resumes from the newest.
      vocabulary: vocabulary file; None uses that of `init_from` or of a folder of token ids.
      init_from: a run, a module, or a released name, whose weights are the initial ones.

    Returns:
      `output`, which holds the weights that are best on the first evaluation split.

    Raises:
      ValueError: if the data is unusable, another run is in this folder, or a vocabulary or a
        checkpoint does not match (`CheckpointError`).
      FloatingPointError: if the loss or a weight became NaN; the last checkpoint is kept.
      OSError: if a file cannot be read or written.

    On SIGTERM, the state is saved after the current step, and `train` returns. If several processes
    train together (`processes.join_processes`), all of them stop.
    """
    init_from = model_path(init_from) if init_from else None
    processes, folder = running_processes(), Path(output)
    with contextlib.ExitStack() as held:
        held.enter_context(leaving_at_once(processes))
        if not processes.is_first:  # process 0 prints for all
            held.enter_context(contextlib.redirect_stdout(io.StringIO()))
        with processes.together():
            set_seed(training.seed)
            data = RunData(model, training, folder, vocabulary=vocabulary, init_from=init_from)
            devices = spread_over_devices(
                processes, batch_size=training.micro_batch or training.batch_size
            )
            held.enter_context(devices)
            if processes.is_first:
                held.enter_context(only_run_in(folder))
        precision = agreed_precision(processes, training.precision)
        with processes.together():
            run = make_run(data, folder, precision=precision, processes=processes)
        return carry_out(run)


def make_run(data: RunData, folder: Path, *, precision: str, processes: Processes) -> Run:
    """Return the run of a dual encoder. Its model has random weights until it starts."""
    config = data.config
    encoder = DualEncoder(
        data.model,
        embedding_dropout=config.embedding_dropout,
        attention_dropout=config.attention_dropout,
        dtype=precision,
    )
    sizes = count_parameters(encoder)
    if config.history_only:
        encoder.freeze_all_but_history()
    print(
        f"precision {precision} (backend {keras.backend.backend()}); "
        f"{sizes['embedding'] / 1e6:.1f} M embedding and {sizes['network'] / 1e6:.1f} M "
        "network parameters"
    )
    teacher_dim = 0 if data.targets is None else data.targets[1].dim
    model = make_ranking_model(encoder, config, precision=precision, teacher_dim=teacher_dim)

    batches, eval_sets = data.batches(precision=precision, processes=processes)
    of_data = config.group(DATA)
    trained_with = {name: v for name, v in config.to_dict().items() if name not in of_data}
    facts: dict[str, Any] = {
        "precision": precision,
        "parameters": sizes,
        "train": trained_with,
        "data": of_data,
        "unknown_tokens": data.unknown_share,
    }
    if data.targets is not None:
        facts["teacher"] = data.targets[1].teacher
    if data.ranking_teacher is not None:
        facts["ranking_teacher"] = data.ranking_teacher.teacher
    similarity = _Similarity(data.targets, model, is_alone=processes.number == 1)

    def batches_from(step: int) -> Iterator[Batch]:
        batches.skip_batches = step
        return (Batch(inputs, config.batch_size) for inputs in batches)

    def evaluate(step: int, logs: dict[str, float], rows: Any) -> dict[str, Any]:
        names = ("ranking_loss", "batch_accuracy")  # those of each objective end so
        return {
            "pairs": step * config.batch_size,
            **dict.fromkeys(names),
            **{name: value for name, value in logs.items() if name.endswith(names)},
            **{split: evaluate_encoder(encoder, own) for split, own in eval_sets.items()},
        }

    def score(row: dict[str, Any]) -> float | None:
        first = next(iter(config.eval_splits), None)
        return row[first]["R100@1"] if first in row else None

    def curve(rows: list[dict[str, Any]]) -> bytes:
        # With history_only, the loss of the context alone does not change.
        loss = "both_ranking_loss" if config.history_only else "ranking_loss"
        recalls = [(split, name) for split in config.eval_splits for name in _DRAWN]
        return curves(rows, {RECALL: recalls, LOSS: [("", loss)]})

    def to_agree_on(resume_from: Path | None) -> Any:
        numbers = {split: opened.num_examples for split, opened in data.examples.items()}
        initial = []
        if data.init_from and resume_from is None:
            projection = Path(data.init_from) / checkpoint.PROJECTION_FILE
            files = [*checkpoint.weights_files(data.init_from), projection]
            initial = [file_checksum(path) for path in files if path.is_file()]
        # Hosts may have the data at different places.
        options = dataclasses.replace(config, data="")
        return data.model, options, numbers, data.trained_on.num_examples, initial

    def keep_facts(before: dict[str, Any]) -> None:
        # If r changes, what was measured of the map to vectors for similarity is not true any more.
        kept = ("initial_weights", *(("teacher", "similarity") if config.history_only else ()))
        facts.update({name: before[name] for name in kept if before.get(name) is not None})

    def start(resumed: dict[str, Any] | None) -> None:
        if resumed is not None:
            keep_facts(resumed)
            similarity.keep(folder)
            return
        if data.init_from is not None:
            initial = checkpoint.training_facts(data.init_from)
            keep_facts({**initial, "initial_weights": str(data.init_from)})
            checkpoint.load_initial_weights(encoder, data.init_from)
            similarity.keep(data.init_from)
            similarity.start_projection(data.init_from)
        if data.targets is not None and config.start_from_teacher:
            subwords = data.targets[1].subwords
            rows = initial_rows(subwords, data.model.embedding_dim, seed=config.seed)
            encoder.trunk.embedding.start_from(rows)

    return Run(
        folder=folder,
        config=config,
        options={"model": data.model, "train": config},
        vocabulary=data.source.vocabulary,
        model=model,
        facts=facts,
        batches_from=batches_from,
        evaluate=evaluate,
        score=score,
        curve=curve,
        model_changes=lambda earlier: checkpoint.load_config(earlier).differences(data.model),
        start=start,
        to_save=similarity.to_save,
        to_agree_on=to_agree_on,
        padding_id=data.examples["train"].padding_id,
        processes=processes,
    )


@dataclasses.dataclass
class _Similarity:
    """The maps of a run from r to the teacher's vectors and to vectors for similarity.

    Args:
      targets: as of `RunData`.
      model: the model.
      is_alone: whether one process trains. Several fit no map: none computes with all variables.
      kept: the map to vectors for similarity of an earlier model.
    """

    targets: tuple[Examples, TeacherVectors] | None
    model: ResponseRanking
    is_alone: bool
    kept: Any = None

    def keep(self, folder: str | Path) -> None:
        """Keep the map to vectors for similarity of an earlier model if this run trains none."""
        if not (self.model.distillation and self.is_alone):
            self.kept = checkpoint.load_similarity_map(folder)

    def start_projection(self, init_from: str) -> None:
        """Start the map to the teacher's vectors from that of the initial run.

        A random map would undo in the first steps what that run has learnt. A module has no such
        map; then one is fitted to some of the training texts.
        """
        if not self.model.distillation or self.targets is None:
            return
        kernel = self.model.teacher_projection.kernel
        known = checkpoint.load_teacher_projection(init_from, self.targets[1].teacher)
        if known is not None and known.shape == kernel.shape:
            kernel.assign(known)
            print(f"the map to the teacher's vectors starts as in {init_from}")
        elif not self.is_alone:
            print(
                f"the map to the teacher's vectors starts anew: {init_from} has none, and several "
                "processes fit none"
            )
        else:
            texts = taught_texts(self.model.encoder, *self.targets, max_examples=FITTED_EXAMPLES)
            kernel.assign(fitted_map(*texts))
            print("the map to the teacher's vectors is fitted to texts that are trained on")

    def to_save(self) -> dict[str, Any]:
        """Return the arguments of `save_checkpoint` for the best weights."""
        saved = {} if self.kept is None else {"similarity_map": self.kept}
        if not self.model.distillation:
            return saved
        kernel = ops.convert_to_numpy(self.model.teacher_projection.kernel)
        saved["teacher_projection"] = kernel
        if self.is_alone and self.targets is not None:
            reduced, _ = taught_texts(
                self.model.encoder, *self.targets, max_examples=_TURNED_EXAMPLES
            )
            saved["similarity_map"] = similarity_map(reduced, kernel)
        return saved
