"""Data for training a dual encoder: examples, and the batches made from them."""

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from convert_tf.checkpoints.configs import load_config
from convert_tf.checkpoints.kinds import Kind, kind_of
from convert_tf.checkpoints.vocabulary import check_same_vocabulary, vocabulary_path
from convert_tf.config.bert import BertConfig
from convert_tf.config.model import ModelConfig
from convert_tf.config.train import PairTraining, shares_of_sources
from convert_tf.data.batches import EvaluationBatches, TrainingBatches
from convert_tf.data.negatives import HardNegatives
from convert_tf.data.packing import (
    ROW_TOKENS,
    compiled_row_multiple,
    padding_share,
    partly_compiled_row_multiple,
)
from convert_tf.data.schema import Addition, Examples, SelectedExamples
from convert_tf.data.teacher_vectors import TeacherVectors
from convert_tf.data.token_arrays import UTTERANCES, ArrayExamples, ArrayFolder
from convert_tf.data.unknown_tokens import SAMPLE, checked_share
from convert_tf.data.utterances import UtteranceDraws
from convert_tf.metrics import BLOCK_SIZE
from convert_tf.numerics.devices import compiles_feed_forward, compiles_shapes
from convert_tf.storage.folders import put_aside
from convert_tf.training.processes import ALONE, Processes, rows_of_a_share

if TYPE_CHECKING:
    from convert_tf.data.records import RecordFolder


# A folder of token ids or of records. Reading records needs TensorFlow.
Folder: TypeAlias = "ArrayFolder | RecordFolder"


def open_data(
    data: str, vocabulary: str | None, model: ModelConfig | None, init_from: str | None
) -> tuple[Folder, ModelConfig]:
    """Open the training data, and adapt the model configuration to the vocabulary of the data.

    Raises:
      CheckpointError: if the vocabulary differs from that of `init_from`.
      ValueError: if no model or no vocabulary is given, or the token ids were made with another
        vocabulary or another number of hash buckets.
    """
    initial = None if init_from is None else load_config(init_from)
    if init_from is not None and initial is not None:
        initial_vocabulary = vocabulary_path(init_from, initial)
        model = model or initial
        if vocabulary is not None:
            check_same_vocabulary(
                vocabulary,
                initial_vocabulary,
                rule="Fine-tuning must keep the vocabulary of the checkpoint",
                remedy="Omit --vocab.",
            )
        vocabulary = str(initial_vocabulary)
    if model is None:
        raise ValueError("Training needs a model. Pass --model or --init_from.")
    folder = open_folder(data, vocabulary, model.num_oov_buckets)
    if initial is not None:
        check_same_buckets(folder, initial)
    check_same_buckets(folder, model, is_new=True)
    fitted = {"vocab_size": folder.vocab_size, "tokenizer": folder.tokenizer_name}
    return folder, ModelConfig.from_dict({**model.to_dict(), **fitted})


def check_same_buckets(
    folder: Folder, config: ModelConfig | BertConfig, *, is_new: bool = False
) -> None:
    """Check that token ids and a model have the same number of hash buckets for unknown tokens.

    With another number, unknown tokens would train other rows of the embedding table, or rows that
    do not exist.

    Args:
      folder: the folder. Records are not checked, because they are tokenized for the model.
      config: configuration of the model.
      is_new: whether the model is not trained yet, so that its number of hash buckets may change.

    Raises:
      ValueError: if the numbers differ.
    """
    if not isinstance(folder, ArrayFolder) or config.num_oov_buckets == folder.num_oov_buckets:
        return
    remedy = (
        f"Pass --num_oov_buckets={folder.num_oov_buckets}."
        if is_new
        else "Write the token ids again with `convert-tf tokenize "
        f"--num_oov_buckets={config.num_oov_buckets}`."
    )
    raise ValueError(
        f"The model has {config.num_oov_buckets} hash buckets (num_oov_buckets), but the token "
        f"ids in {folder.folder!r} have {folder.num_oov_buckets}. {remedy}"
    )


def open_folder(data: str, vocabulary: str | None, num_oov_buckets: int) -> Folder:
    """Open a folder of records or token ids. `num_oov_buckets` is only used for records.

    Raises:
      ValueError: if no vocabulary is given, the token ids were made with another vocabulary,
        TensorFlow is missing, or a killed run moved the data aside.
    """
    kind = kind_of(data)
    if kind is Kind.TOKEN_IDS:
        folder = ArrayFolder(data)
        if vocabulary:
            check_same_vocabulary(
                vocabulary,
                folder.vocabulary,
                rule="Training on token ids needs the vocabulary they were made with",
                remedy="Omit --vocab, or write the token ids again with the vocabulary in --vocab.",
            )
        return folder
    if kind is not Kind.RECORDS and (remedy := put_aside(data)):
        raise ValueError(f"{data!r} has no token ids or records. {remedy}")
    if vocabulary is None:
        raise ValueError("Training on records needs a vocabulary. Pass --vocab or --init_from.")
    try:
        from convert_tf.data.records import RecordFolder
    except ModuleNotFoundError as error:
        raise ValueError(
            f"Cannot read the records in {data!r} without TensorFlow and TensorFlow Text "
            f"({error}). Install them, or train on token ids written by `convert-tf tokenize`."
        ) from error
    return RecordFolder(data, vocabulary=vocabulary, num_oov_buckets=num_oov_buckets)


def share_of_unknown(folder: Folder, examples: Examples, data: str) -> float:
    """Return the share of unknown tokens in the first examples, and warn if it exceeds one half.

    Args:
      folder: folder that the examples come from.
      examples: examples of the training split.
      data: path of the folder, for messages.
    """
    if not examples.num_examples:
        raise ValueError(f"{data!r} has no training examples. Prepare it again from more text.")
    first = examples.load(np.arange(min(SAMPLE, examples.num_examples)))
    return checked_share(
        examples.token_ids(first).flat,
        folder.vocabulary,
        tokenizer=folder.tokenizer_name,
        vocab_size=folder.vocab_size,
        what=f"the texts of {data}",
    )


def open_splits(folder: Folder, model: ModelConfig, config: PairTraining) -> dict[str, Examples]:
    """Open the splits that a run reads. Earlier turns are included if the model reads them.

    Raises:
      ValueError: if a split is missing, damaged or too small, or if an option for earlier turns
        does not suit the model or the data.
    """
    if config.turn_prefixes and not model.multi_context:
        raise ValueError(reads_no_turns("turn_prefixes"))
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
        remedy = "Prepare more data, or run `convert-tf prepare` with a larger --dev_fraction."
        if split == "train":
            available = max(0, available - config.first_train_example)
            available = min(available, config.train_examples or available)
            remedy = (
                "Prepare more data, lower --batch_size or --first_train_example, or raise "
                "--train_examples."
            )
        if available < number:
            raise ValueError(
                f"The {split} split needs at least {number} examples, but {config.data!r} has "
                f"{available}. {remedy}"
            )
    return opened


def reads_no_turns(flag: str) -> str:
    """Return the error message for a flag that is only for models that read earlier turns."""
    return (
        f"{flag} is for models that read earlier turns, but this model has multi_context=False. "
        f"Omit --{flag}, or use --model=convert_multi_context."
    )


def as_token_ids(examples: Examples, data: str, rule: str, flag: str) -> ArrayExamples:
    """Return `examples` if they are token ids, and raise an error otherwise.

    Args:
      examples: examples of a split.
      data: path of the folder with the examples, for the error message.
      rule: beginning of the error message, such as "Teacher vectors need".
      flag: flag that needs token ids.

    Raises:
      ValueError: if the examples are records.
    """
    if isinstance(examples, ArrayExamples):
        return examples
    raise ValueError(
        f"{rule} token ids ({flag}), but {data!r} contains records. Write token ids with "
        "`convert-tf tokenize`, pass that folder as --data, and compute teacher vectors and mined "
        "negatives from it."
    )


def trained_examples(examples: Examples, config: PairTraining) -> Examples:
    """Select the examples of the training split to train on.

    Raises:
      ValueError: if `source_shares` is given for records, names unknown sources or leaves too few
        examples.
    """
    first = config.first_train_example
    stop = min(first + (config.train_examples or examples.num_examples), examples.num_examples)
    if not config.source_shares:
        return SelectedExamples(examples, range(first, stop))
    examples = as_token_ids(examples, config.data, "Shares of sources need", "--source_shares")
    numbers = examples.thinned(shares_of_sources(config.source_shares), first, stop)
    if len(numbers) < config.batch_size:
        raise ValueError(
            f"Training needs at least {config.batch_size} examples, but source_shares "
            f"{', '.join(config.source_shares)} leaves {len(numbers)}. Raise the shares."
        )
    return SelectedExamples(examples, numbers)


def _check_all_taught(teacher: TeacherVectors, name: str, trained_on: Examples) -> None:
    """Raise `ValueError` if some training examples have no teacher vectors."""
    numbers = trained_on.load(np.arange(trained_on.num_examples))
    missing = np.setdiff1d(numbers, teacher.numbers, assume_unique=True)
    if len(missing):
        raise ValueError(
            f"{len(missing):,} of the {len(numbers):,} training examples have no teacher vectors "
            f"in {name!r}, which has vectors for {len(teacher.numbers):,} examples. The first one "
            f"without vectors is number {missing[0] + 1:,}. Set --train_examples to at most the "
            "--max_examples of `convert-tf teach`, use the same --source_shares and no "
            "--first_train_example, or write vectors for more examples."
        )


class EncoderData:
    """The examples of a run, and the model configuration for their vocabulary.

    Args:
      model, config, vocabulary, init_from: as in `train`, where `config` is named `training`.
      is_resumed: whether the run resumes from a checkpoint.
      processes: processes that train together.

    Attributes:
      config, init_from, is_resumed, processes: the arguments of the same names.
      source: folder that the examples come from.
      model: model configuration, adapted to the vocabulary of the folder.
      examples: examples of each split, by the name of the split.
      trained_on: examples of the training split that the run trains on.
      unknown_share: share of unknown tokens in the first examples.

    Raises:
      ValueError: if the data is unusable, or hard negatives are missing, damaged, or were mined
        from other texts.
    """

    def __init__(
        self,
        model: ModelConfig | None,
        config: PairTraining,
        *,
        vocabulary: str | None,
        init_from: str | None,
        is_resumed: bool = False,
        processes: Processes = ALONE,
    ) -> None:
        self.config = config
        self.init_from = init_from
        self.is_resumed = is_resumed
        self.processes = processes
        self.source, self.model = open_data(config.data, vocabulary, model, init_from)
        self.examples = open_splits(self.source, self.model, config)
        examples = self.examples["train"]
        self.unknown_share = share_of_unknown(self.source, examples, config.data)
        self.trained_on = trained_examples(examples, config)
        self._negatives: list[Addition] = []
        if config.hard_negatives:
            negatives = HardNegatives(
                config.hard_negatives,
                as_token_ids(examples, config.data, "Mined negatives need", "--hard_negatives"),
                per_pair=config.negatives_per_pair,
                seed=config.seed,
            )
            self._negatives.append(negatives)

    def teacher_vectors(
        self, folder: str, *, flag: str = "teacher", is_for_all: bool = False
    ) -> TeacherVectors:
        """Open a teacher's vectors for the pairs.

        Args:
          folder: folder written by `convert-tf teach`.
          flag: name of the flag for the folder, for error messages; see `TeacherVectors`.
          is_for_all: whether all training examples must have vectors.

        Raises:
          ValueError: if the data consists of records, or vectors are missing, are damaged or belong
            to other texts.
        """
        examples = self.examples["train"]
        ids = as_token_ids(examples, self.config.data, "Teacher vectors need", f"--{flag}")
        teacher = TeacherVectors(folder, ids, vocab_size=self.source.vocab_size, flag=flag)
        if is_for_all:
            _check_all_taught(teacher, folder, self.trained_on)
        return teacher

    @functools.cached_property
    def utterances(self) -> UtteranceDraws:
        """The single texts to train on in addition to the pairs.

        Raises:
          ValueError: if the single texts and the pairs were tokenized with different vocabularies.
        """
        examples = self.open_texts(self.config.utterances, UTTERANCES)
        return UtteranceDraws(
            examples, per_pair=self.config.utterances_per_pair, seed=self.config.seed
        )

    def open_texts(self, path: str, holds: str) -> ArrayExamples:
        """Open the token ids of single texts or triplets.

        Args:
          path: folder written by `convert-tf tokenize`.
          holds: the required kind of examples, `utterances` or `triplets`.

        Raises:
          ValueError: if the folder contains no training texts or another kind of examples, or its
            vocabulary differs from the vocabulary of the pairs.
        """
        folder = ArrayFolder(path)
        rule = "Additional texts must be tokenized with the vocabulary of the pairs"
        remedy = f"Write their token ids again with `convert-tf tokenize --{holds}`."
        check_same_vocabulary(folder.vocabulary, self.source.vocabulary, rule=rule, remedy=remedy)
        if folder.num_oov_buckets != self.source.num_oov_buckets:
            raise ValueError(
                f"{rule}. Received: {path!r}, with {folder.num_oov_buckets} hash "
                f"buckets instead of {self.source.num_oov_buckets}. {remedy}"
            )
        examples = folder.open("train", max_tokens=self.model.max_tokens, holds=holds)
        if not examples.num_examples:
            raise ValueError(f"{path!r} has no {holds} to train on.")
        return examples

    def batches(
        self, additions: Sequence[Addition] = (), *, precision: str = "float32"
    ) -> TrainingBatches:
        """Return this process's training batches.

        Args:
          additions: texts and columns to add to each batch. An addition that occurs twice is added
            only once.
          precision: name of the dtype policy. The number of rows in a batch is padded to a multiple
            that suits this policy.
        """
        config = self.config
        # Two losses may read the same texts. These texts must not be added twice.
        added = list({id(x): x for x in (*self._negatives, *additions)}.values())
        row_multiple = 1
        encoded = config.micro_batch or config.batch_size  # number of pairs encoded at once
        if compiles_shapes():
            texts = len(self.trained_on.names) + sum(len(addition.names) for addition in added)
            row_multiple = compiled_row_multiple(texts * encoded)
        elif compiles_feed_forward(precision):
            row_multiple = partly_compiled_row_multiple(encoded)
        return TrainingBatches(
            self.trained_on,
            batch_size=config.batch_size,
            row_tokens=max(ROW_TOKENS, self.model.max_tokens),
            shuffle_buffer=config.shuffle_buffer,
            micro_batches=config.num_micro_batches,
            seed=config.seed,
            row_multiple=rows_of_a_share(row_multiple, self.processes),
            part=(self.processes.index, self.processes.number),
            marks_duplicates=config.mask_duplicates,
            additions=added,
        )

    def evaluation_batches(self) -> dict[str, EvaluationBatches]:
        """Return the batches of each evaluation split, and print the share of padding in them."""
        eval_sets = {
            split: EvaluationBatches(
                self.examples[split],
                self.model.max_tokens,
                max_examples=self.config.eval_examples,
                marks_duplicates=self.config.mask_duplicates,
            )
            for split in self.config.eval_splits
        }
        for split, packed in eval_sets.items():
            print(
                f"{100 * padding_share(packed):.1f} % of the packed tokens of {split} are padding"
            )
        return eval_sets
