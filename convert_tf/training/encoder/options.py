"""Options for training dual encoders: all fields, the recipes, and the defaults for a run.

Importing this module loads neither Keras nor TensorFlow, so that commands can show their flags
quickly.
"""

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from convert_tf.config.base import check, preset
from convert_tf.config.model import MODEL_PRESETS, ModelConfig, model_preset
from convert_tf.config.train import TRAIN_RECIPES, PairTraining, overridden
from convert_tf.extras import needs
from convert_tf.training.encoder.losses import LOSSES
from convert_tf.training.encoder.losses.base import Loss

_LossOptions: Any = dataclasses.make_dataclass(
    "_LossOptions",
    (),
    # Python requires a class to precede its own base classes in this list.
    bases=tuple(
        sorted({loss.Options for loss in LOSSES}, key=lambda c: (-len(c.__mro__), c.__name__))
    ),
    frozen=True,
)


@dataclasses.dataclass(frozen=True)
class EncoderTraining(_LossOptions, PairTraining):
    """Options for training dual encoders: the fields of `PairTraining` and of every loss.

    The loss is the mean over the batch, whereas equation 1 of arXiv 1911.03688 uses the sum.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        losses = self.losses()
        check(
            any(loss.weight > 0 for loss in losses),
            "ranking must be greater than 0 if no other loss has a weight above 0.",
            self.ranking,
        )
        for loss in losses:
            loss.check(losses)
        check(
            bool(self.utterances) == any(loss.reads_utterances for loss in losses),
            "utterances must be set if, and only if, a loss reads single texts: distillation with "
            "utterance_teacher, or intent_contrast.",
            self.utterances,
        )

    def losses(self) -> list[Loss]:
        """Return all built-in losses with these options, even losses with a weight of 0."""
        return [loss(self) for loss in LOSSES]


def train_recipe(name: str, **overrides: Any) -> EncoderTraining:
    """Return the options of a recipe, with the given fields replaced as `overridden` describes.

    Raises:
      ValueError: if `name` is not a recipe, or an override is not a field.
    """
    fields = {**EncoderTraining.defaults(), **preset(TRAIN_RECIPES, name)}
    return EncoderTraining.from_dict(overridden(fields, overrides))


def chosen_options(
    model: ModelConfig | str | None,
    training: EncoderTraining | Mapping[str, Any],
    *,
    output: str,
    vocabulary: str | None,
    init_from: str | None,
    recipe: str | None,
) -> tuple[ModelConfig | None, EncoderTraining, str | None]:
    """Return the model, the options and the vocabulary for a run. `train` explains the arguments.

    If the data is a file, it is first prepared in `output`.

    Raises:
      ValueError: if no data or no model is given, or an option or the recipe would have no effect.
      OSError: if the file cannot be read, or its data cannot be written.
    """
    complete = training if isinstance(training, EncoderTraining) else None
    if complete and recipe:
        raise ValueError(
            f"The recipe {recipe} would overwrite training, which already sets every option. Pass "
            "a dict with only the options that differ from the recipe."
        )
    given = complete.to_dict() if complete else dict(training)
    data = given.get("data") or ""
    if not os.path.exists(data):
        problem = f"--data={data} does not exist" if data else "--data is missing"
        raise ValueError(
            f"{problem}. Pass a folder of records or token ids, or a file of pairs or dialogues."
        )
    if model is None and not init_from:
        raise ValueError(
            f"There is no model to train. Pass --model ({', '.join(MODEL_PRESETS)}) or --init_from."
        )
    if isinstance(model, str):
        model = model_preset(model)
    added: dict[str, Any] = {}
    if os.path.isfile(data):
        with needs("train", "Preparing a file"):
            from convert_tf.training.own_file import prepare_own_file
        pairs = prepare_own_file(
            data, output, vocabulary=vocabulary, learns_vocabulary=not init_from
        )
        vocabulary, recipe = pairs.vocabulary, recipe or "small"
        added["eval_splits"] = pairs.eval_splits
        if recipe == "small":
            added |= pairs.sizes(given.get("batch_size"))
        given["data"] = pairs.data
    if complete:
        replaced = {"data": given["data"]}
        if not added.get("eval_splits", True):
            replaced["eval_splits"] = ()
        return model, dataclasses.replace(complete, **replaced), vocabulary
    if recipe == "paper_finetune":
        if init_from is None:
            raise ValueError(
                "The recipe paper_finetune starts from a trained model. Pass the folder of a run "
                "or a module as --init_from, or use the recipe paper."
            )
        from convert_tf.checkpoints.loading import trained_scale

        scale = trained_scale(init_from)
        added |= {"scale_start": scale, "scale_end": scale}
    config = train_recipe(recipe or "paper", **{**added, **given})
    config.check_effect(training)
    return model, config, vocabulary
