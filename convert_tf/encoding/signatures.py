"""The table of the signatures that encoders may have.

`SentenceEncoder`, its backends, model cards, indexes, the service and the exporters use this table.

To add a signature, add an entry to `SIGNATURES`. Then add the computation: a method in
`convert_tf.export.hub.encoder_module` for modules, an output in `convert_tf.export.onnx.graph` for
`.onnx` files, and an output in `convert_tf.models.encoder` for runs.
"""

from typing import NamedTuple


class Signature(NamedTuple):
    """A function from texts to vectors, one vector per text.

    Attributes:
      kind: the name of the signature in `SentenceEncoder`, commands and requests.
      name: the name of the signature in modules.
      dim: the name of the fact about a model that says how many dimensions the vectors have. If a
        model does not have this signature, the fact is missing or 0.
      vectors: a description of the vectors for model cards.
      queries: the kind of vectors that queries need, so that texts with these vectors can be ranked
        by dot products. `""` if these vectors are not for ranking.
    """

    kind: str
    name: str
    dim: str
    vectors: str
    queries: str = ""

    @property
    def output(self) -> str:
        """The name of the network output that contains these vectors."""
        return self.name if self.name == "default" else f"{self.kind}_encoding"

    @property
    def slots(self) -> str:
        """The name of the network input that selects the texts for `output`."""
        return "slots" if self.dim == "reduced_dim" else f"{self.kind}_slots"


# Numbers of dimensions that similarity vectors can be cut to.
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
    """Return the name of the signature of this kind. If `kind` is such a name, return it."""
    return SIGNATURES[kind].name if kind in SIGNATURES else kind
