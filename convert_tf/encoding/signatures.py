"""The signatures of encoders: what `SentenceEncoder`, its backends, model cards, indexes, the
service and the exporters know of each.

A new signature is an entry of `SIGNATURES` and its graph: a method of
`convert_tf.export.hub.encoder_module`, an output of `convert_tf.export.onnx.graph` and an output of
`convert_tf.models.encoder`, which a run computes.
"""

from typing import NamedTuple


class Signature(NamedTuple):
    """Texts to one vector each.

    Attributes:
      kind: how `SentenceEncoder`, commands and requests call it.
      name: of a module's signature.
      dim: the fact of a model that says how many numbers a vector has; 0 or none where the model is
        without it.
      vectors: what a model card says of these numbers.
      queries: the kind whose dot products with these vectors rank them; `""` where none do.
    """

    kind: str
    name: str
    dim: str
    vectors: str
    queries: str = ""

    @property
    def output(self) -> str:
        """The output of a network that computes it."""
        return self.name if self.name == "default" else f"{self.kind}_encoding"

    @property
    def slots(self) -> str:
        """The input of a network that says which texts `output` is made of."""
        return "slots" if self.name == "default" else f"{self.kind}_slots"


# Lengths to which a vector for similarity can be cut.
SHORTER_DIMS = (256, 128, 64)

SIGNATURES = {
    signature.kind: signature
    for signature in (
        Signature("sentence", "default", "reduced_dim", "numbers, not normalised"),
        Signature("context", "encode_context", "encoding_dim", "numbers, L2-normalised"),
        Signature(
            "response", "encode_response", "encoding_dim", "numbers, L2-normalised", "context"
        ),
        Signature(
            "similarity",
            "encode_similarity",
            "similarity_dim",
            "numbers, L2-normalised",
            "similarity",
        ),
    )
}
BY_NAME = {signature.name: signature for signature in SIGNATURES.values()}


def signature_name(kind: str) -> str:
    """The name of a signature that is given by its kind or by its name."""
    return SIGNATURES[kind].name if kind in SIGNATURES else kind
