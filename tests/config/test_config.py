import json
from pathlib import Path

import numpy as np
import pytest
from support.model_cases import packed_batch, random_texts

from convert_tf.checkpoints.vocabulary import vocabulary_path
from convert_tf.config.base import options_of
from convert_tf.config.bert import BertConfig
from convert_tf.config.model import MODEL_PRESETS, ModelConfig, model_preset
from convert_tf.config.ranker import HeadConfig, RankerConfig, RankerTraining
from convert_tf.config.train import Pretraining, RankingTraining
from convert_tf.corpora.comments import Rules
from convert_tf.corpora.options import PrepareOptions
from convert_tf.intents.options import IntentOptions, SeveralOptions
from convert_tf.service.batching import Limits
from convert_tf.text.subwords import SubwordConfig
from convert_tf.training.encoder.options import EncoderTraining

CONFIGS = (ModelConfig, EncoderTraining, HeadConfig, RankerTraining, BertConfig, Pretraining)

# Another value for each field of ModelConfig. If a new field has none, tests below fail.
OTHER_MODEL_VALUES = {
    "vocab_size": 21, "num_oov_buckets": 4, "tokenizer": "sentencepiece", "embedding_dim": 10,
    "position_table_sizes": (5, 4), "max_relative_attention": (1, 5), "num_heads": 2,
    "attention_dim": 5, "use_relative_bias": False, "feed_forward_dim": 13, "reduction_heads": 3,
    "reduction_dim": 4, "side_layers": 1, "side_hidden_dim": 17, "use_side_skip": False,
    "encoding_dim": 7, "embedding_bits": 32, "max_tokens": 11, "multi_context": True,
}  # fmt: skip
# These two are used when texts are converted to tokens.
READ_OUTSIDE_THE_ENCODER = {"tokenizer", "max_tokens"}


def test_every_model_field_is_tried():
    assert OTHER_MODEL_VALUES.keys() == ModelConfig.defaults().keys()


def _shapes_and_output(config, make_encoder) -> tuple[list, np.ndarray]:
    encoder = make_encoder(config)
    texts = [text % 20 for text in random_texts(config, [3, 12, 7, 2])]
    batch = packed_batch(texts[:2], texts[2:], config.num_ids, row_tokens=12)
    batch["extra_context_slots"] = batch["response_slots"]
    shapes = [(v.path, tuple(v.shape)) for v in encoder.variables]
    return shapes, np.asarray(encoder(batch)["context_encoding"])


@pytest.mark.parametrize("name", sorted(set(OTHER_MODEL_VALUES) - READ_OUTSIDE_THE_ENCODER))
def test_every_model_option_changes_the_network(small_config, make_encoder, name):
    other = ModelConfig(**{**small_config.to_dict(), name: OTHER_MODEL_VALUES[name]})
    assert list(small_config.differences(other)) == [name]
    shapes, output = _shapes_and_output(small_config, make_encoder)
    other_shapes, other_output = _shapes_and_output(other, make_encoder)
    if shapes == other_shapes:
        assert np.abs(output - other_output).max() > 1e-3


@pytest.mark.parametrize(
    "config_class",
    [*CONFIGS, Rules, PrepareOptions, SubwordConfig, Limits, IntentOptions, SeveralOptions],
)
def test_every_field_has_a_help_text(config_class):
    texts = {name: settings["text"] for name, settings in options_of(config_class).items()}
    assert [name for name, text in texts.items() if not text] == []


def test_a_subclass_inherits_the_settings_that_it_does_not_change():
    general, own = options_of(RankingTraining), options_of(Pretraining)
    assert options_of(RankerTraining)["batch_size"] == general["batch_size"]
    assert own["steps"]["text"].endswith("alternate with steps for predicting the next utterance.")
    assert own["warmup_steps"] == {**general["warmup_steps"], "at_least": 1}


def test_a_run_may_go_on_from_options_that_are_refused_now():
    before = {"steps": 3, "final_learning_rate": 5.0}
    assert EncoderTraining(steps=4).changes_since(before) == {
        "steps": (3, 4),
        "final_learning_rate": (5.0, 0.001),
    }
    training = EncoderTraining(eval_splits=("dev", "test"))
    assert training.changes_since({"eval_splits": ["dev", "test"], "gone": 1}) == {}


def test_options_of_earlier_versions_are_read_if_they_had_no_effect():
    old = {"side_layers": 2, "use_value_projection": False}
    assert ModelConfig.from_dict(old) == ModelConfig(side_layers=2)
    with pytest.raises(ValueError, match=r"use_value_projection=True is an option of an earlier"):
        ModelConfig.from_dict({**old, "use_value_projection": True})
    head = {"head": "poly", "negatives_from": "mined", "mined_with": "x", "epochs": 3.0}
    assert HeadConfig.from_dict({**head, "output_std": 0.5}) == HeadConfig(head="poly")


def test_the_tokenizer_option_decides_the_vocabulary_file(small_config):
    other = ModelConfig(**{**small_config.to_dict(), "tokenizer": "sentencepiece"})
    assert vocabulary_path("x", small_config) != vocabulary_path("x", other)


@pytest.mark.parametrize("config_class", [ModelConfig, BertConfig])
def test_sizes_beyond_any_machine_are_refused(config_class):
    """TensorFlow's own error for such sizes has hundreds of lines."""
    for values, message in (
        ({"feed_forward_dim": 10**12}, "feed_forward_dim must be at least 1 and at most 16777216"),
        ({"feed_forward_dim": 2**24}, r"feed_forward_dim.* must give at most 1,073,741,824 weigh"),
        ({"vocab_size": 2**24}, r"vocab_size.* must give at most"),
    ):
        with pytest.raises(ValueError, match=message):
            config_class(**values)
    name = {ModelConfig: "max_relative_attention", BertConfig: "num_layers"}[config_class]
    with pytest.raises(ValueError, match="at most 1,000 layers"):
        config_class(**{name: 1_001 if config_class is BertConfig else (3,) * 1_001})


def test_the_defaults_are_the_papers():
    """Default values are those of arXiv 1911.03688 §2.1 and §3.1."""
    model, train = ModelConfig(), EncoderTraining()
    assert model.num_ids == 31_476 + 1_000
    assert (model.embedding_dim, model.position_table_sizes) == (512, (47, 11))
    assert model.max_relative_attention == (3, 5, 48, 48, 48, 48)
    assert (model.num_heads, model.attention_dim, model.feed_forward_dim) == (1, 64, 2048)
    assert (model.reduction_heads, model.reduced_dim) == (2, 1024)
    assert (model.side_layers, model.side_hidden_dim, model.encoding_dim) == (3, 1024, 512)
    assert (model.embedding_bits, model.max_tokens) == (8, 60)
    assert (train.optimizer, train.batch_size) == ("adadelta", 512)
    assert (train.learning_rate, train.final_learning_rate) == (1.0, 0.001)
    assert (train.scale_start, train.scale_end, train.scale_anneal_steps) == (1.0, 0.0, 10_000)
    assert (train.label_smoothing, train.l2) == (0.2, 1e-5)


def test_numbers_of_numpy_and_paths_are_stored():
    sizes = (np.int64(47), np.int64(11))
    model = ModelConfig(max_tokens=np.int64(60), position_table_sizes=sizes)
    assert model == ModelConfig(max_tokens=60)
    assert ModelConfig.from_json(model.to_json()) == model
    training = EncoderTraining(data=Path("d") / "e", steps=np.int32(7))
    assert (training.data, type(training.steps)) == (str(Path("d") / "e"), int)
    assert EncoderTraining.from_json(training.to_json()) == training
    rates = EncoderTraining(learning_rate=np.float32(0.25), mask_duplicates=np.bool_(False))
    assert (rates.learning_rate, rates.mask_duplicates) == (0.25, False)
    assert (type(rates.learning_rate), type(rates.mask_duplicates)) == (float, bool)
    assert EncoderTraining.from_json(rates.to_json()) == rates
    for value in (60.0, np.array([60, 61]), "60", True):
        with pytest.raises(ValueError, match=r"max_tokens must be a whole number\. Received: "):
            ModelConfig(max_tokens=value)


def test_lists_become_tuples():
    assert ModelConfig(position_table_sizes=[47, np.int64(11)]) == ModelConfig()


def test_presets():
    assert model_preset("convert") == ModelConfig()
    assert model_preset("tiny", vocab_size=7).vocab_size == 7
    assert model_preset("tiny").embedding_dim < 512
    assert model_preset("convert_multi_context") == ModelConfig(multi_context=True)
    for name in MODEL_PRESETS:
        assert ModelConfig.from_json(model_preset(name).to_json()) == model_preset(name)


@pytest.mark.parametrize("config_class", CONFIGS)
def test_json_round_trip(config_class):
    config = config_class()
    assert config_class.from_json(config.to_json()) == config
    assert json.loads(config.to_json()).keys() == config_class.defaults().keys()
    assert hash(config_class.from_json(config.to_json())) == hash(config)  # lists became tuples


@pytest.mark.parametrize("config_class", CONFIGS)
def test_unknown_keys_are_listed_with_the_valid_ones(config_class):
    with pytest.raises(ValueError, match=r"has no field nonsense\. Its fields are "):
        config_class.from_dict({"nonsense": 1})


@pytest.mark.parametrize("text", ["{", "[1]", "3", ""])
def test_only_json_objects_are_read(text):
    with pytest.raises(ValueError, match="A stored ModelConfig must be"):
        ModelConfig.from_json(text)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("model", [], r"A stored ModelConfig must be a JSON object\. Received: \[\]"),
        ("head", 3, "A stored HeadConfig must be a JSON object. Received: 3"),
        ("trunk", ["convert"], r"trunk must be one of convert, bert\. Received: \['convert'\]"),
    ],
)
def test_parts_of_a_ranker_must_have_the_right_type(name, value, message):
    values = json.loads(RankerConfig(ModelConfig(), HeadConfig()).to_json())
    with pytest.raises(ValueError, match=message):
        RankerConfig.from_json(json.dumps({**values, name: value}))


def test_long_values_and_names_are_shortened_in_messages():
    for values in ({"feed_forward_dim": "x" * 10_000}, {"\ud800" + "x" * 10_000: 1}):
        with pytest.raises(ValueError, match="feed_forward_dim") as caught:
            ModelConfig.from_dict(values)
        assert len(str(caught.value).encode()) < 1_000


@pytest.mark.parametrize(
    ("config_class", "values"),
    [
        (ModelConfig, {"vocab_size": 0}),
        (ModelConfig, {"position_table_sizes": (4, 6)}),
        (ModelConfig, {"position_table_sizes": (4, 5, 7)}),
        (ModelConfig, {"max_relative_attention": ()}),
        (ModelConfig, {"max_relative_attention": (3, 0)}),
        (ModelConfig, {"embedding_bits": 16}),
        (EncoderTraining, {"batch_size": 1}),
        (EncoderTraining, {"precision": "float16"}),
        (EncoderTraining, {"learning_rate": 0.0}),
        (EncoderTraining, {"label_smoothing": 1.0}),
        (EncoderTraining, {"eval_examples": 99}),
    ],
    ids=str,
)
def test_values_out_of_range_are_named(config_class, values):
    (name,) = values
    with pytest.raises(ValueError, match=rf"{name} must .*Received: "):
        config_class(**values)
