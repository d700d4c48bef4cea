"""One fine-tuning run of a ranker: data, model, resume and `fit`."""

import itertools
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np

from convert_tf import checkpoint
from convert_tf.callbacks import Progress, fit_on
from convert_tf.checkpoint import CheckpointError
from convert_tf.data.candidates import CandidateExample, read_candidates
from convert_tf.data.packing import TokenIds
from convert_tf.data.prefetch import Prefetch
from convert_tf.data.ranking_batches import (
    NegativeSampler,
    RankingBatches,
    RankingExamples,
    Tokenize,
    tokenize_examples,
)
from convert_tf.files import write_file
from convert_tf.head_config import HeadConfig, head_train_defaults
from convert_tf.metrics import BLOCK_SIZE
from convert_tf.ranker_checkpoint import initial_ranker, load_ranker_config
from convert_tf.ranker_mining import mine_negatives
from convert_tf.ranker_texts import make_tokenize
from convert_tf.ranker_trainer import (
    RankerRecorder,
    RankerTraining,
    make_ranker_training,
    rescale_outputs,
)
from convert_tf.rankers import Ranker
from convert_tf.summaries import TensorBoardWriter
from convert_tf.termination import termination_noted
from convert_tf.train_config import TrainConfig
from convert_tf.trainer import choose_precision
from convert_tf.training import RUN_FILE, only_run_in, set_seed
from convert_tf.training_state import load_training_state, newest_checkpoint

# What must stay when a run resumes: the shapes of the head, and what its weights were trained to.
_HEAD_OF_A_RUN = (
    "head", "reduction", "reduction_tokens", "poly_codes", "poly_variant", "learn_scale",
    "separate_trunks", "freeze", "trainable_blocks",
)  # fmt: skip
_UNREAD = {
    "scale_start", "scale_end", "scale_anneal_steps", "history_dropout", "mask_duplicates",
    "distillation", "start_from_teacher",
}  # fmt: skip
_DEV_LIST = 20  # candidates of a context where records are ranked by a cross-encoder


def read_examples(
    data: str, split: str, *, max_examples: int | None = None
) -> Iterator[CandidateExample]:
    """The examples of a candidates file, or of a split of a folder of records.

    Args:
      data: the file, or the folder, whose responses are each the one candidate of their context.
      split: of a folder.
      max_examples: stop after this many.

    Raises:
      ValueError: there are none, or they are damaged.
      OSError: the file cannot be read.
    """
    if not os.path.isdir(data):
        yield from itertools.islice(read_candidates(data), max_examples)
        return
    from convert_tf.data.turns import read_turns

    for record in read_turns(data, split, max_examples=max_examples):
        yield CandidateExample(record.turns, (record.response,), (0,))


def with_dev_candidates(examples: RankingExamples, *, is_joint: bool) -> RankingExamples:
    """Examples with candidates to rank: those given, or those of other examples.

    Records give the right candidate only. A bi- or poly-encoder then ranks it among the right ones
    of its block of 100 examples; a cross-encoder, which reads each pair anew, among 20.

    Raises:
      ValueError: there are too few examples for that.
    """
    if any(len(own) > 1 for own in examples.candidates):
        return examples
    size = _DEV_LIST if is_joint else BLOCK_SIZE
    usable = examples.num_examples // size * size
    if not usable:
        raise ValueError(
            f"Ranking among {size} needs at least {size} examples. Received: "
            f"{examples.num_examples} on the dev data. Use more."
        )
    right = np.concatenate(examples.candidates[:usable]).reshape(-1, size)
    splits = examples.contexts.row_splits[: usable + 1]
    candidates, labels = [], []
    for block in right:
        for own in block:
            # A text that is right for several contexts of the block is one candidate of each.
            texts = np.unique(block)
            candidates.append(texts)
            labels.append(np.flatnonzero(texts == own))
    contexts = TokenIds(examples.contexts.flat[: splits[-1]], splits)
    return RankingExamples(contexts, examples.pool, candidates, labels)


def train_ranker(
    head: HeadConfig,
    train_options: dict[str, Any],
    *,
    data: str,
    dev_data: str,
    init_from: str,
    output: str,
) -> Path:
    """Fine-tunes a ranker, or goes on with a run that was stopped.

    Args:
      head: the head, its negatives, what is frozen, and for how many epochs it is trained.
      train_options: fields of `TrainConfig` that are not `head_train_defaults`; `steps` in place of
        epochs, `eval_every` in place of evaluations per epoch.
      data: folder of records, whose train split is read, or a candidates file.
      dev_data: folder of records, whose dev split is read, or a candidates file.
      init_from: model directory of a dual encoder or a ranker, or a module of the former.
      output: the run's folder. When it holds checkpoints, training goes on from the newest.

    Returns:
      `output`, a ranker's model directory with the best weights on the dev data.

    Raises:
      ValueError: bad data or options, another run in this folder, or checkpoints that do not match.
      FloatingPointError: the loss or a weight became NaN; the last checkpoint is kept.
      OSError: a file cannot be read or written.
    """
    unread = sorted(_UNREAD & set(train_options))
    if unread:
        raise ValueError(
            "A head's factor is --scale and --learn_scale, and it reads no earlier turns apart. "
            f"Received: {', '.join(unread)}, which it does not read. Leave them out."
        )
    if train_options.get("micro_batch"):
        raise ValueError(
            "A head is trained on whole batches. Received: micro_batch "
            f"{train_options['micro_batch']}. Leave --micro_batch out, or lower --batch_size."
        )
    run = Path(output)
    seed = int(train_options.get("seed", 0))
    set_seed(seed)
    with only_run_in(run), termination_noted() as termination:
        precision = choose_precision(train_options.get("precision", "auto"))
        options = {**head_train_defaults(head.head), **train_options}
        rates = {
            name: options[name]
            for name in ("embedding_dropout", "attention_dropout", "quantizer_update_steps")
            if name in options
        }
        ranker, vocabulary = initial_ranker(init_from, head, dtype=precision, **rates)
        head = ranker.config.head
        tokenize = make_tokenize(vocabulary, ranker.config)
        examples = _examples(data, "train", head, tokenize, head.max_examples or None)
        dev = with_dev_candidates(
            _examples(dev_data, "dev", head, tokenize, options["eval_examples"]),
            is_joint=ranker.is_joint,
        )
        sampler = _sampler(examples, head, init_from)
        config = _train_config(options, head, examples.num_examples)
        newest = _check_same_run(run, ranker, vocabulary)
        facts = {"precision": precision, "init_from": init_from, "data": data,
                 "dev_data": dev_data, "train": config.to_dict()}  # fmt: skip
        write_file(run / RUN_FILE, json.dumps({**facts, "head": head.to_dict()}, indent=2) + "\n")
        if head.output_std:
            factor = rescale_outputs(ranker, examples.contexts, head.output_std)
            print(f"outputs rescaled by {factor:.4g} to a standard deviation of {head.output_std}")
        model = make_ranker_training(ranker, config, head, precision=precision)
        step = 0
        if newest is not None:
            step = load_training_state(newest, model)
            print(f"resuming at step {step} from {newest}")
        if step >= config.steps:
            print(f"nothing to do: the run has its {config.steps} steps")
            return run
        batches = RankingBatches(
            examples,
            batch_size=config.batch_size,
            padding_id=ranker.padding_id,
            seed=config.seed,
            sampler=sampler,
        )
        print(
            f"{head.head} on {examples.num_examples} examples in batches of {batches.batch_size}, "
            f"{config.steps} steps; precision {precision} (backend {keras.backend.backend()})"
        )
        progress = Progress(step, config.steps, batches.batch_size, termination=termination)
        recorder = RankerRecorder(
            run, config, vocabulary=vocabulary, eval_sets={"dev": dev}, progress=progress,
            facts=facts, head=head,
        )  # fmt: skip
        _fit(model, batches, config, progress=progress, recorder=recorder)
    return run


def _examples(
    data: str, split: str, head: HeadConfig, tokenize: Tokenize, max_examples: int | None
) -> RankingExamples:
    return tokenize_examples(
        read_examples(data, split, max_examples=max_examples),
        tokenize,
        max_context_tokens=head.max_context_tokens,
        max_candidate_tokens=head.max_candidate_tokens,
    )


def _sampler(examples: RankingExamples, head: HeadConfig, init_from: str) -> NegativeSampler | None:
    if head.negatives_from == "in_batch":
        return None
    mined = None
    if head.negatives_from == "mined":
        mined = mine_negatives(
            head.mined_with, examples, top=head.mined_top, vocabulary_of=init_from
        )
    return NegativeSampler(examples, source=head.negatives_from, count=head.negatives, mined=mined)


def _train_config(options: dict[str, Any], head: HeadConfig, num_examples: int) -> TrainConfig:
    """Steps from epochs, and evaluations so many times an epoch, where nothing else is said."""
    batch_size = min(options["batch_size"], num_examples)
    per_epoch = num_examples // batch_size
    evaluated = max(1, per_epoch // head.evaluations_per_epoch)
    steps = max(1, round(head.epochs * per_epoch))
    return TrainConfig(
        **{"steps": steps, "eval_every": evaluated, "checkpoint_every": evaluated, **options}
    )


def _check_same_run(run: Path, ranker: Ranker, vocabulary: Path) -> Path | None:
    """The newest checkpoint to resume from, held against the ranker; None where there is none."""
    newest = newest_checkpoint(run)
    if newest is None:
        return None
    before = load_ranker_config(newest)
    changed = [
        name
        for name in _HEAD_OF_A_RUN
        if getattr(before.head, name) != getattr(ranker.config.head, name)
    ]
    if before.model != ranker.config.model or changed:
        raise CheckpointError(
            "A resumed run must keep its model and its head. Received: another "
            f"{', '.join(changed) or 'model'} than {str(newest)!r} has. Take these flags "
            "back, or choose another --output."
        )
    known = checkpoint.vocabulary_path(newest, before)  # type: ignore[arg-type]
    if known.read_bytes() != vocabulary.read_bytes():
        raise CheckpointError(
            f"A resumed run must keep its vocabulary. Received: {str(vocabulary)!r}, which "
            f"differs from {str(known)!r}. Take back --init_from, or choose another --output."
        )
    return newest


def _unlike_widths(
    batches: Iterator[dict[str, np.ndarray]], padding_id: int
) -> Iterator[tuple[dict[str, np.ndarray]]]:
    """The batches, the first one with more padding than the second.

    Keras takes a dimension in which its first two batches agree for one that never changes.
    """
    first, second = next(batches), next(batches)
    for name in ("context_ids", "candidate_ids"):
        missing = second[name].shape[-1] + 1 - first[name].shape[-1]
        if missing > 0:
            widths = [(0, 0)] * (first[name].ndim - 1) + [(0, missing)]
            first[name] = np.pad(first[name], widths, constant_values=padding_id)
    yield (first,)
    yield (second,)
    for batch in batches:
        yield (batch,)


def _fit(
    model: RankerTraining,
    batches: RankingBatches,
    config: TrainConfig,
    *,
    progress: Progress,
    recorder: RankerRecorder,
) -> None:
    board = TensorBoardWriter(str(recorder.run / "logs"), progress=progress, recorder=recorder)
    while not progress.is_over:
        batches.skip_batches = progress.step
        with Prefetch(batches) as prefetched:
            try:
                fit_on(
                    model,
                    _unlike_widths(prefetched, batches.padding_id),
                    [progress, recorder, board],
                    progress=progress,
                    interval=math.gcd(config.eval_every, config.checkpoint_every),
                )
            except Exception as error:
                if prefetched.error is None or prefetched.error is error:
                    raise
                raise prefetched.error from error  # without what the backend wraps it in
