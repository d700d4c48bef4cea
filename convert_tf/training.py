"""One training run: data, model, resume and `fit`, as `train.py` starts it."""

import json
import math
from pathlib import Path
from typing import Any

import keras

from convert_tf import checkpoint
from convert_tf.callbacks import Progress, RunRecorder
from convert_tf.config import DataConfig, ModelConfig, TrainConfig
from convert_tf.encoders import DualEncoder, count_parameters
from convert_tf.trainer import choose_precision, make_ranking_model, tensorboard_callback

RUN_FILE = "train_config.json"


def _resolved(
    run: Path, model: ModelConfig, train: TrainConfig, data: DataConfig, vocabulary: Path
) -> bool:
    """Writes the run's configuration, or holds it against the one the run began with.

    Returns:
      Whether the run has begun before.
    """
    begun = (run / RUN_FILE).is_file() and bool(checkpoint.resumable_checkpoints(run))
    if begun:
        newest = checkpoint.resumable_checkpoints(run)[0]
        before = checkpoint.load_config(newest)
        if before != model:
            lines = [f"  {k}: {a!r} → {b!r}" for k, (a, b) in before.differences(model).items()]
            raise checkpoint.CheckpointError(
                "A resumed run must keep its model. Received another one:\n" + "\n".join(lines) +
                "\nTake these flags back, or choose another --output."
            )  # fmt: skip
        if checkpoint.vocabulary_path(newest, before).read_bytes() != vocabulary.read_bytes():
            raise checkpoint.CheckpointError(
                f"A resumed run must keep its vocabulary. Received: {str(vocabulary)!r}, which "
                f"differs from the one in {str(newest)!r}. Use that one or another --output."
            )
        earlier = TrainConfig.from_dict(json.loads((run / RUN_FILE).read_text())["train"])
        for name, (old, new) in earlier.differences(train).items():
            print(f"resuming with another {name}: {old} → {new}")
    run.mkdir(parents=True, exist_ok=True)
    configs = {"model": model.to_dict(), "train": train.to_dict(), "data": data.to_dict()}
    checkpoint.write_file(run / RUN_FILE, json.dumps(configs, indent=2) + "\n")
    return begun


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
      vocabulary: vocabulary file; None takes the one of `init_from`.
      init_from: a model directory whose weights are the initial ones (fine-tuning).

    Returns:
      `output`, a model directory with the best weights on the first evaluation split.

    Raises:
      ValueError: bad data, a vocabulary or checkpoint that does not match (`CheckpointError`).
      FloatingPointError: the loss became NaN; the last checkpoint is kept.
    """
    from convert_tf.data.pipeline import PairBatches, padding_share, read_pairs, training_batches
    from convert_tf.text.tokenizer import load_tokenizer

    run = Path(output)
    keras.utils.set_random_seed(train_config.seed)
    if init_from is not None:
        initial = checkpoint.load_config(init_from)
        model_config = initial if model_config is None else model_config
        vocabulary = vocabulary or str(checkpoint.vocabulary_path(init_from, initial))
    if model_config is None or vocabulary is None:
        raise ValueError(
            "Training needs a model and a vocabulary. "
            f"Received: model {model_config!r}, vocabulary {vocabulary!r}. "
            "Give --model and --vocab, or --init_from."
        )
    tokenizer = load_tokenizer(vocabulary, num_oov_buckets=model_config.num_oov_buckets)
    if init_from is not None:
        checkpoint.check_vocabulary(tokenizer, initial)
    model_config = ModelConfig.from_dict(
        {
            **model_config.to_dict(),
            "vocab_size": tokenizer.vocab_size,
            "tokenizer": tokenizer.name,
        }
    )
    if data_config.row_tokens < model_config.max_tokens:
        raise ValueError(
            "A packed row must hold the longest text. Received: row_tokens "
            f"{data_config.row_tokens}, max_tokens {model_config.max_tokens}. Raise --row_tokens."
        )
    begun = _resolved(run, model_config, train_config, data_config, Path(vocabulary))

    precision = choose_precision(train_config.precision)
    encoder = DualEncoder(
        model_config,
        embedding_dropout=train_config.embedding_dropout,
        attention_dropout=train_config.attention_dropout,
        quantizer_update_steps=train_config.quantizer_update_steps,
        dtype=precision,
    )
    sizes = count_parameters(encoder)
    print(
        f"precision {precision} (backend {keras.backend.backend()}); "
        f"{sizes['embedding'] / 1e6:.1f} M embedding and {sizes['network'] / 1e6:.1f} M network "
        "parameters"
    )
    if init_from is not None and not begun:
        checkpoint.load_weights(encoder, init_from)
    model = make_ranking_model(encoder, train_config, precision=precision)
    step = 0
    if begun:
        newest = checkpoint.resumable_checkpoints(run)[0]
        step = checkpoint.load_training_state(newest, model)
        print(f"resuming at step {step} from {newest}")
    if step >= train_config.steps:
        print(f"nothing to do: the run has its {train_config.steps} steps")
        return run

    limits = {"max_tokens": model_config.max_tokens, "row_tokens": data_config.row_tokens}
    eval_sets = {
        split: PairBatches(
            *read_pairs(data_config.data, split, max_examples=train_config.eval_examples),
            tokenizer=tokenizer,
            **limits,
        )
        for split in data_config.eval_splits
    }
    for split, packed in eval_sets.items():
        print(f"{100 * padding_share(packed):.1f} % of the packed tokens of {split} are padding")
    batches = training_batches(
        data_config.data,
        tokenizer,
        split=data_config.train_split,
        batch_size=train_config.batch_size,
        shuffle_buffer=data_config.shuffle_buffer,
        seed=train_config.seed,
        skip_batches=step,
        **limits,
    )
    _fit(model, batches, eval_sets, train_config, run=run, step=step, vocabulary=Path(vocabulary),
         facts={"data": data_config.to_dict(), "precision": precision, "parameters": sizes,
                "train": train_config.to_dict()})  # fmt: skip
    return run


def _fit(
    model: keras.Model,
    batches: Any,
    eval_sets: dict[str, Any],
    config: TrainConfig,
    *,
    run: Path,
    step: int,
    vocabulary: Path,
    facts: dict[str, Any],
) -> None:
    interval = math.gcd(config.eval_every, config.checkpoint_every)
    progress = Progress(step, config.steps, config.batch_size)
    recorder = RunRecorder(
        run, config, vocabulary=vocabulary, eval_sets=eval_sets, progress=progress, facts=facts
    )
    board = tensorboard_callback(str(run / "logs"))
    model.fit(
        batches,
        initial_epoch=step // interval,
        epochs=math.ceil(config.steps / interval),
        steps_per_epoch=interval,
        shuffle=False,
        verbose=0,
        callbacks=[progress, recorder, *([board] if board else [])],
    )
