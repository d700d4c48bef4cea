"""Training data of a dual encoder: records or token ids, and the vocabulary of the model."""

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from convert_tf.checkpoints import folder as checkpoint
from convert_tf.checkpoints.kinds import Kind, kind_of
from convert_tf.checkpoints.vocabulary import check_same_vocabulary, vocabulary_path
from convert_tf.config.model import ModelConfig
from convert_tf.config.train import EncoderTraining, shares_of_sources
from convert_tf.data.negatives import HardNegatives
from convert_tf.data.schema import Examples, SelectedExamples
from convert_tf.data.token_arrays import ArrayExamples, ArrayFolder
from convert_tf.data.unknown_tokens import SAMPLE, checked_share
from convert_tf.metrics import BLOCK_SIZE

if TYPE_CHECKING:
    from convert_tf.data.records import RecordFolder

# A folder of token ids or of records; the latter needs TensorFlow.
Folder: TypeAlias = "ArrayFolder | RecordFolder"


def open_data(
    data: str, vocabulary: str | None, model: ModelConfig | None, init_from: str | None
) -> tuple[Folder, ModelConfig]:
    """Open the folder of training data, and return it with the model that fits its vocabulary.

    Raises:
      CheckpointError: if the vocabulary is not that of `init_from`.
      ValueError: if there is no model or no vocabulary, or token ids were made for another one.
    """
    if init_from is not None:
        initial = checkpoint.load_config(init_from)
        own = vocabulary_path(init_from, initial)
        model = model or initial
        if vocabulary is not None:
            check_same_vocabulary(
                vocabulary,
                own,
                rule="Fine-tuning must keep the vocabulary of its checkpoint",
                remedy="Omit --vocab.",
            )
        vocabulary = str(own)
    if model is None:
        raise ValueError("Training needs a model. Give --model, or --init_from.")
    folder = open_folder(data, vocabulary, model.num_oov_buckets)
    if isinstance(folder, ArrayFolder) and model.num_oov_buckets != folder.num_oov_buckets:
        raise ValueError(
            f"The model has {model.num_oov_buckets} hash buckets (num_oov_buckets), and the token "
            f"ids in {data!r} have {folder.num_oov_buckets}. Pass "
            f"--num_oov_buckets={folder.num_oov_buckets}."
        )
    fitted = {"vocab_size": folder.vocab_size, "tokenizer": folder.tokenizer_name}
    return folder, ModelConfig.from_dict({**model.to_dict(), **fitted})


def open_folder(data: str, vocabulary: str | None, num_oov_buckets: int) -> Folder:
    """Open a folder of records or of token ids. Only records need `num_oov_buckets`.

    Raises:
      ValueError: if there is no vocabulary, it is not that of the token ids, or TensorFlow is
        missing.
    """
    if kind_of(data) is Kind.TOKEN_IDS:
        folder = ArrayFolder(data)
        if vocabulary:
            check_same_vocabulary(
                vocabulary,
                folder.vocabulary,
                rule="Token ids are trained on with the vocabulary that made them",
                remedy="Omit --vocab, or write the token ids with that vocabulary.",
            )
        return folder
    if vocabulary is None:
        raise ValueError("Training on records needs a vocabulary. Give --vocab, or --init_from.")
    try:
        from convert_tf.data.records import RecordFolder
    except ModuleNotFoundError as error:
        raise ValueError(
            f"Cannot read the records in {data!r} without TensorFlow and TensorFlow Text "
            f"({error}). Install them, or train on token ids that convert-tf tokenize wrote."
        ) from error
    return RecordFolder(data, vocabulary=vocabulary, num_oov_buckets=num_oov_buckets)


def share_of_unknown(folder: Folder, examples: Examples, data: str) -> float:
    """Return the share of unknown tokens in the first examples, and warn if it is more than half.

    Args:
      folder: the folder of the examples.
      examples: the training split.
      data: name of the folder.
    """
    first = examples.load(np.arange(min(SAMPLE, examples.num_examples)))
    return checked_share(
        examples.token_ids(first).flat,
        folder.vocabulary,
        tokenizer=folder.tokenizer_name,
        vocab_size=folder.vocab_size,
        what=f"the texts of {data}",
    )


def open_splits(folder: Folder, model: ModelConfig, config: EncoderTraining) -> dict[str, Examples]:
    """Open the splits that a run reads, with earlier turns if the model reads them.

    Raises:
      ValueError: if a split is missing, damaged, or has too few examples; or if an option of
        earlier turns does not fit the model or the data.
    """
    for name in ("turn_prefixes", "history_only"):
        if getattr(config, name) and not model.multi_context:
            raise ValueError(
                f"{name} is for models that read earlier turns, and this one has "
                f"multi_context=False. Omit --{name}, or use --model=convert_multi_context."
            )
    needed = dict.fromkeys(config.eval_splits, BLOCK_SIZE)
    needed["train"] = max(needed.get("train", 0), config.batch_size)
    opened: dict[str, Examples] = {}
    for split, number in needed.items():
        opened[split] = folder.open(
            split,
            max_tokens=model.max_tokens,
            with_extra_contexts=model.multi_context,
            turn_prefixes=config.turn_prefixes,
        )
        available = opened[split].num_examples
        remedy = "Prepare more data, or give prepare a larger --dev_fraction."
        if split == "train":
            available = max(0, available - config.first_train_example)
            available = min(available, config.train_examples or available)
            remedy = (
                "Prepare more data, lower --batch_size or --first_train_example, or raise "
                "--train_examples."
            )
        if available < number:
            raise ValueError(
                f"The {split} split needs at least {number} examples, and {config.data!r} has "
                f"{available}. {remedy}"
            )
    return opened


def as_token_ids(examples: Examples, data: str, rule: str, flag: str) -> ArrayExamples:
    """Return examples that must be token ids.

    Args:
      examples: examples of a split.
      data: their folder.
      rule: how the error begins, such as "Teacher vectors go with".
      flag: the flag that needs token ids.

    Raises:
      ValueError: if they are records.
    """
    if isinstance(examples, ArrayExamples):
        return examples
    raise ValueError(
        f"{rule} token ids ({flag}), and {data!r} holds records. Write token ids with `convert-tf "
        "tokenize`, and what goes with them from those, and pass them as --data."
    )


def trained_examples(examples: Examples, config: EncoderTraining) -> Examples:
    """Return the examples of the training split that are trained on.

    Raises:
      ValueError: if `source_shares` is given for records or for unknown sources, or leaves too few
        examples.
    """
    first = config.first_train_example
    stop = min(first + (config.train_examples or examples.num_examples), examples.num_examples)
    if not config.source_shares:
        return SelectedExamples(examples, range(first, stop))
    examples = as_token_ids(examples, config.data, "Sources are told apart in", "--source_shares")
    numbers = examples.thinned(shares_of_sources(config.source_shares), first, stop)
    if len(numbers) < config.batch_size:
        raise ValueError(
            f"Training needs at least {config.batch_size} examples, and source_shares "
            f"{', '.join(config.source_shares)} leave {len(numbers)}. Raise the shares."
        )
    return SelectedExamples(examples, numbers)


def open_negatives(examples: Examples, config: EncoderTraining) -> HardNegatives | None:
    """Return the mined negatives of the training split, or None.

    Raises:
      ValueError: if they are damaged, belong to other token ids, or are too few; or if records are
        trained on.
    """
    if not config.hard_negatives:
        return None
    examples = as_token_ids(examples, config.data, "Mined negatives go with", "--hard_negatives")
    return HardNegatives(
        config.hard_negatives,
        examples,
        per_pair=config.negatives_per_pair,
        seed=config.seed,
    )
