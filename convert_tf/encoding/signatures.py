"""The signatures of encoders.

`SentenceEncoder`, its backends, model cards, indexes, the service and the exporters use this table.

A new signature needs an entry in `SIGNATURES` and its computation: a method of
`convert_tf.export.hub.encoder_module`, an output of `convert_tf.export.onnx.graph`, and an output
of `convert_tf.models.encoder`, which runs compute.
"""

from typing import NamedTuple


class Signature(NamedTuple):
    """A function from texts to one vector each.

    Attributes:
      kind: name of the signature in `SentenceEncoder`, commands and requests.
      name: name of the signature in modules.
      dim: name of the model's fact that holds the width of the vectors. If a model does not have
        this signature, the fact is missing or 0.
      vectors: description of the vectors for model cards.
      queries: kind of query vectors: their dot products with these vectors rank the texts. `""` if
        these vectors are not ranked.
    """

    kind: str
    name: str
    dim: str
    vectors: str
    queries: str = ""

    @property
    def output(self) -> str:
        """Name of the network output that contains these vectors."""
        return self.name if self.name == "default" else f"{self.kind}_encoding"

    @property
    def slots(self) -> str:
        """Name of the network input that selects the texts for `output`."""
        return "slots" if self.dim == "reduced_dim" else f"{self.kind}_slots"


# Lengths to which similarity vectors can be cut.
SHORTER_DIMS = (256, 128, 64)

_UNIT, _FREE = "numbers, L2-normalised", "numbers, not normalised"
_ALL = (
    Signature("sentence", "default", "reduced_dim", _FREE),
    Signature("reduced", "reduced", "reduced_dim", _FREE),
    Signature("context", "encode_context", "encoding_dim", _UNIT),
    Signature("response", "encode_response", "encoding_dim", _UNIT, "context"),
    Signature("similarity", "encode_similarity", "similarity_dim", _UNIT, "similarity"),
)
SIGNATURES = {signature.kind: signature for signature in _ALL}
BY_NAME = {signature.name: signature for signature in SIGNATURES.values()}


def signature_name(kind: str) -> str:
    """Return the name of the signature for a kind or a name."""
    return SIGNATURES[kind].name if kind in SIGNATURES else kind
