"""Records without TensorFlow have the bytes that TensorFlow writes."""

import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from convert_tf.data.schema import EXTRA_FEATURES, Example
from convert_tf.data.shards import in_record_file, serialize_example

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)


@given(st.tuples(*[TEXT] * 5), st.lists(TEXT, max_size=10))
def test_an_example_is_serialised_as_by_tensorflow(texts, extra_contexts):
    context, response, subreddit, thread_id, author = texts
    example = Example(
        thread_id, "id", subreddit, context, response, tuple(extra_contexts), author, "b", "source"
    )
    record = tf.train.Example()
    feature = record.features.feature
    for name, text in zip(EXTRA_FEATURES, extra_contexts, strict=False):
        feature[name].bytes_list.value.append(text.encode())
    for name in ("context", "response", "subreddit", "thread_id", "source"):
        feature[name].bytes_list.value.append(getattr(example, name).encode())
    feature["context_author"].bytes_list.value.append(author.encode())
    feature["response_author"].bytes_list.value.append(b"b")
    assert serialize_example(example) == record.SerializeToString(deterministic=True)


def test_a_file_is_framed_as_by_tensorflow(tmp_path):
    pytest.importorskip("google_crc32c")
    records = [b"", b"a", bytes(range(256)) * 300]
    with tf.io.TFRecordWriter(str(tmp_path / "file")) as writer:
        for record in records:
            writer.write(record)
    assert (tmp_path / "file").read_bytes() == b"".join(map(in_record_file, records))
