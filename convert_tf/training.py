"""One training run: data, model, resume and `fit`, as `train.py` starts it."""

import contextlib
import fcntl
import io
import json
import math
import random
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import ops

from convert_tf import checkpoint
from convert_tf.callbacks import Progress, RunRecorder, fit_on
from convert_tf.config import ModelConfig
from convert_tf.config_base import PRECISIONS
from convert_tf.data.batches import PAIR, EvaluationBatches, Examples, TrainingBatches
from convert_tf.data.prefetch import Prefetch
from convert_tf.data.teacher_vectors import TeacherVectors
from convert_tf.distillation import fitted_map, initial_rows
from convert_tf.distribution import (
    AgreedSteps,
    Processes,
    check_same,
    check_shared,
    leaving_at_once,
    running_processes,
    spread_over_devices,
)
from convert_tf.encoders import DualEncoder, count_parameters
from convert_tf.files import write_file
from convert_tf.summaries import TensorBoardWriter
from convert_tf.termination import Termination, termination_noted
from convert_tf.train_config import DataConfig, TrainConfig
from convert_tf.trainer import ResponseRanking, choose_precision, make_ranking_model
from convert_tf.training_data import (
    make_batches,
    open_data,
    open_negatives,
    open_splits,
    open_teacher,
    trained_examples,
)
from convert_tf.training_state import load_training_state, newest_checkpoint

RUN_FILE = "train_config.json"
LOCK_FILE = ".lock"
_FITTED_EXAMPLES = 4_096  # whose encodings and teacher's vectors make a map


@contextlib.contextmanager
def only_run_in(folder: Path) -> Iterator[None]:
    """Holds the folder of a run; the lock ends with the process, however it ends."""
    if checkpoint.is_module(folder):
        raise ValueError(
            f"A run has a folder of its own. Received: {str(folder)!r}, a module. Choose another "
            "--output."
        )
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / LOCK_FILE, "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ValueError(
                f"One folder holds one run at a time. Received: {str(folder)!r}, in which another "
                "process is training. Wait for it, or choose another --output."
            ) from error
        yield


def _check_same_run(
    run: Path, model: ModelConfig, train: TrainConfig, data: DataConfig, vocabulary: Path
) -> Path | None:
    """Holds the configuration against the one that the run in this folder began with.

    Returns:
      The newest checkpoint to resume from; None for a run that has none yet.
    """
    newest = newest_checkpoint(run)
    if newest is None:
        return None
    if not (run / RUN_FILE).is_file():
        raise checkpoint.CheckpointError(
            f"A run must have its {RUN_FILE}. Received: {str(run)!r}, which has checkpoints but "
            "not that file. Choose another --output, or remove its checkpoints."
        )
    before = checkpoint.load_config(newest)
    if before != model:
        differences = before.differences(model).items()
        listed = "\n".join(f"  {name}: {old!r} → {new!r}" for name, (old, new) in differences)
        raise checkpoint.CheckpointError(
            f"A resumed run must keep its model. Received another one:\n{listed}\n"
            "Take these flags back, or choose another --output."
        )
    if checkpoint.vocabulary_path(newest, before).read_bytes() != vocabulary.read_bytes():
        raise checkpoint.CheckpointError(
            f"A resumed run must keep its vocabulary. Received: {str(vocabulary)!r}, which "
            f"differs from the one in {str(newest)!r}. Use that one or another --output."
        )
    earlier = json.loads((run / RUN_FILE).read_text())
    changes = {
        **TrainConfig.from_dict(earlier["train"]).differences(train),
        **DataConfig.from_dict(earlier["data"]).differences(data),
    }
    for name, (old, new) in changes.items():
        print(f"resuming with another {name}: {old} → {new}")
    order = {"batch_size", "seed", "data", "train_split", "train_examples", "first_train_example",
             "source_shares", "shuffle_buffer"}  # fmt: skip
    if changes.keys() & order:
        print("these decide the order of the pairs: some may be seen again, some later")
    return newest


def _start_projection(
    model: ResponseRanking,
    init_from: str,
    teacher: TeacherVectors,
    trained_on: Examples,
    *,
    row_tokens: int,
    processes: Processes,
) -> None:
    """Has the map to the teacher's vectors start as that of the run that is gone on from.

    A random one would undo, in the first steps, what that run has learnt. Where there is none, as
    beside a module, one is fitted to the first examples that are trained on.
    """
    known = checkpoint.load_teacher_projection(init_from, teacher.teacher)
    if known is not None and known.shape == model.teacher_projection.kernel.shape:
        model.teacher_projection.kernel.assign(known)
        print(f"the map to the teacher's vectors starts as in {init_from}")
        return
    if processes.number > 1:  # none of them computes with the variables of all
        print(f"the map to the teacher's vectors starts anew: {init_from} has none, and several "
              "processes fit none")  # fmt: skip
        return
    reduced, vectors = [], []
    first = EvaluationBatches(trained_on, max_examples=_FITTED_EXAMPLES, row_tokens=row_tokens)
    numbers = trained_on.load(np.array([0]), np.array([first.num_examples]))
    for batch, start in zip(first, range(0, len(numbers), first.batch_size), strict=True):
        encodings = model.encoder(batch, training=False)
        columns = teacher.columns(numbers[start : start + first.batch_size])
        for name in PAIR:
            own = ops.cast(encodings[f"reduced_{name}"], "float32")
            reduced.append(ops.convert_to_numpy(own))
            vectors.append(columns[f"teacher_{name}"])
    kernel = fitted_map(np.concatenate(reduced), np.concatenate(vectors))
    model.teacher_projection.kernel.assign(kernel)
    print(f"the map to the teacher's vectors is fitted to {len(numbers):,} examples")


def _checksums(init_from: str) -> list[int]:
    projection = Path(init_from) / checkpoint.PROJECTION_FILE
    files = [*checkpoint.weights_files(init_from), projection]
    return [zlib.crc32(path.read_bytes()) for path in files if path.is_file()]


def set_seed(seed: int) -> None:
    """Seeds all that draws initial weights and dropout."""
    if keras.backend.backend() == "tensorflow":
        keras.utils.set_random_seed(seed)
    else:  # where that would import TensorFlow; Keras draws its seeds from Python's
        random.seed(seed)
        np.random.seed(seed)


def train(
    model_config: ModelConfig | None,
    train_config: TrainConfig,
    data_config: DataConfig,
    *,
    output: str,
    vocabulary: str | None = None,
    init_from: str | None = None,
) -> Path:
    """Trains a dual encoder, or goes on with a run that was stopped.

    Args:
      model_config: the model; `vocab_size` and `tokenizer` are taken from the vocabulary. None
        takes the model of `init_from`.
      train_config: how it is trained.
      data_config: on what.
      output: the run's folder. When it holds checkpoints, training goes on from the newest.
      vocabulary: vocabulary file; None takes the one of `init_from` or of a folder of token ids.
      init_from: a model directory, or a module, whose weights are the initial ones (fine-tuning).

    Returns:
      `output`, a model directory with the best weights on the first evaluation split.

    Raises:
      ValueError: bad data, another run in this folder, a vocabulary or checkpoint that does not
        match (`CheckpointError`).
      FloatingPointError: the loss or a weight became NaN; the last checkpoint is kept.
      OSError: a file cannot be read or written.

    On SIGTERM the state is saved after the step that runs, and this returns. Of several processes
    (`distribution.join_processes`) all do where one is told to end.
    """
    processes = running_processes()
    run = Path(output)
    with contextlib.ExitStack() as held:
        held.enter_context(leaving_at_once(processes))
        if not processes.is_first:  # process 0 prints for all
            held.enter_context(contextlib.redirect_stdout(io.StringIO()))
        with processes.together():
            if train_config.start_from_teacher and init_from is not None:
                raise ValueError(
                    "The subword table starts from a checkpoint or from the teacher. Received: "
                    f"init_from {init_from!r} and start_from_teacher. Leave one of them away."
                )
            set_seed(train_config.seed)
            folder, model_config = open_data(data_config.data, vocabulary, model_config, init_from)
            if data_config.row_tokens < model_config.max_tokens:
                raise ValueError(
                    "A packed row must hold the longest text. Received: row_tokens "
                    f"{data_config.row_tokens}, max_tokens {model_config.max_tokens}. Raise "
                    "--row_tokens."
                )
            examples = open_splits(folder, data_config, model_config, train_config)
            own_examples = examples[data_config.train_split]
            trained_on = trained_examples(own_examples, train_config, data_config)
            negatives = open_negatives(own_examples, train_config, data_config)
            teacher = open_teacher(folder, own_examples, trained_on, train_config, data_config)
            configs = {
                "model": model_config.to_dict(),
                "train": train_config.to_dict(),
                "data": data_config.to_dict(),
            }
            held.enter_context(
                spread_over_devices(
                    processes, batch_size=train_config.micro_batch or train_config.batch_size
                )
            )
            resume_from = None
            if processes.is_first:
                held.enter_context(only_run_in(run))
                resume_from = _check_same_run(
                    run, model_config, train_config, data_config, folder.vocabulary
                )
                write_file(run / RUN_FILE, json.dumps(configs, indent=2) + "\n")
        termination = held.enter_context(termination_noted())
        if processes.number > 1:
            check_shared(processes, run)
            with processes.together():
                resume_from = newest_checkpoint(run)
            sizes_of_splits = {split: opened.num_examples for split, opened in examples.items()}
            sizes_of_splits["trained on"] = trained_on.num_examples
            vocabulary_bytes = zlib.crc32(folder.vocabulary.read_bytes())
            initial = _checksums(init_from) if init_from and resume_from is None else []
            given = {**configs, "data": {**configs["data"], "data": ""}}
            facts = (given, sizes_of_splits, vocabulary_bytes, resume_from, initial)
            check_same(processes, repr(facts))
        chosen = PRECISIONS.index(choose_precision(train_config.precision))
        precision = PRECISIONS[processes.gather(chosen)[0, 0]]  # timings differ between processes
        encoder = DualEncoder(
            model_config,
            embedding_dropout=train_config.embedding_dropout,
            attention_dropout=train_config.attention_dropout,
            history_dropout=train_config.history_dropout,
            quantizer_update_steps=train_config.quantizer_update_steps,
            dtype=precision,
        )
        sizes = count_parameters(encoder)
        print(
            f"precision {precision} (backend {keras.backend.backend()}); "
            f"{sizes['embedding'] / 1e6:.1f} M embedding and {sizes['network'] / 1e6:.1f} M "
            "network parameters"
        )
        model = make_ranking_model(
            encoder,
            train_config,
            precision=precision,
            teacher_dim=teacher.dim if teacher is not None else 0,
        )
        step = 0
        with processes.together():
            if resume_from is not None:
                step = load_training_state(resume_from, model)
                print(f"resuming at step {step} from {resume_from}")
                initial_weights = checkpoint.training_facts(resume_from).get("initial_weights")
            else:
                initial_weights = init_from and str(init_from)
                if init_from is not None:
                    checkpoint.load_initial_weights(encoder, init_from)
                    if teacher is not None and model.distillation:
                        _start_projection(
                            model,
                            init_from,
                            teacher,
                            trained_on,
                            row_tokens=data_config.row_tokens,
                            processes=processes,
                        )
                if teacher is not None and train_config.start_from_teacher:
                    rows = initial_rows(
                        teacher.subwords, model_config.embedding_dim, seed=train_config.seed
                    )
                    encoder.trunk.embedding.start_from(rows)
        if step >= train_config.steps:
            print(f"nothing to do: the run has its {train_config.steps} steps")
            return run
        facts = {"precision": precision, "parameters": sizes, **configs}
        del facts["model"]  # config.json has it
        if initial_weights is not None:
            facts["initial_weights"] = initial_weights
        if teacher is not None:
            facts["teacher"] = teacher.teacher
        batches, eval_sets = make_batches(
            examples,
            trained_on,
            train_config,
            data_config,
            processes=processes,
            teacher=teacher,
            negatives=negatives,
        )
        _fit(
            model,
            batches,
            eval_sets,
            train_config,
            run=run,
            step=step,
            vocabulary=folder.vocabulary,
            facts=facts,
            termination=termination,
            processes=processes,
        )
    return run


def _fit(
    model: keras.Model,
    batches: TrainingBatches,
    eval_sets: dict[str, Iterable[dict[str, Any]]],
    config: TrainConfig,
    *,
    run: Path,
    step: int,
    vocabulary: Path,
    facts: dict[str, Any],
    termination: Termination,
    processes: Processes,
) -> None:
    agreed = None
    if processes.number > 1:
        padding_id = batches.examples.padding_id
        termination = agreed = AgreedSteps(processes, termination, padding_id=padding_id)
    progress = Progress(
        step, config.steps, config.batch_size, termination=termination, prints=processes.is_first
    )
    recorder = RunRecorder(
        run,
        config,
        vocabulary=vocabulary,
        eval_sets=eval_sets,
        progress=progress,
        facts=facts,
        processes=processes,
    )
    callbacks: list[keras.callbacks.Callback] = [progress, recorder]
    if processes.is_first:
        callbacks += [TensorBoardWriter(str(run / "logs"), progress=progress, recorder=recorder)]
    while not progress.is_over:
        batches.skip_batches = progress.step
        with Prefetch(batches) as prefetched:
            fit_on(
                model,
                _until_error(prefetched) if agreed is None else agreed.batches(prefetched),
                callbacks if agreed else [_InputError(prefetched), *callbacks],
                progress=progress,
                interval=math.gcd(config.eval_every, config.checkpoint_every),
            )


class _InputError(keras.callbacks.Callback):
    """Raises what went wrong while batches were made, behind the step during which it did."""

    def __init__(self, prefetched: Prefetch):
        super().__init__()
        self.prefetched = prefetched

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self.prefetched.error is not None:
            raise self.prefetched.error


def _until_error(prefetched: Prefetch) -> Iterator[tuple[dict[str, np.ndarray]]]:
    """The batches; from an error on the one before it, until `_InputError` raises.

    An error in a generator would reach `fit` as one of TensorFlow's, with a traceback in the log.
    """
    batch = None
    while True:
        try:
            batch = next(prefetched)
        except StopIteration:  # it was closed
            return
        except Exception:
            if batch is None:  # `fit` takes the first batches itself
                raise
        yield (batch,)
