"""Encoders as embeddings of LangChain; needs `pip install 'convert_tf[langchain]'`."""

import os
from collections.abc import Callable

import numpy as np

from convert_tf.encoding.sentence_encoder import SentenceEncoder
from convert_tf.extras import needs

with needs("langchain", "ConvertEmbeddings"):
    from langchain_core.embeddings import Embeddings


class ConvertEmbeddings(Embeddings):
    """A trained model as `Embeddings` of LangChain, for its vector stores and retrievers.

    Args:
      model: as of `SentenceEncoder`, or one.
      documents: what a store holds. `"texts"` are compared with queries as `encode` gives them,
        with no length of 1: use a store that compares cosines. `"responses"` are answers, found by
        the message that they answer: documents are encoded as responses and queries as contexts,
        all of length 1.

    Raises:
      ValueError: the model is none, or `documents` is neither.

    Example:
      store = InMemoryVectorStore.from_texts(texts, ConvertEmbeddings("convert_small"))
      store.similarity_search("where is my card?")
    """

    def __init__(
        self, model: str | os.PathLike[str] | SentenceEncoder, *, documents: str = "texts"
    ):
        if documents not in ("texts", "responses"):
            raise ValueError(f"documents must be 'texts' or 'responses'. Received: {documents!r}.")
        encoder = model if isinstance(model, SentenceEncoder) else SentenceEncoder(model)
        self._encode_documents: Callable[[list[str]], np.ndarray] = encoder.encode
        self._encode_queries: Callable[[list[str]], np.ndarray] = encoder.encode
        if documents == "responses":
            self._encode_documents = encoder.encode_responses
            self._encode_queries = encoder.encode_contexts

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """A vector for each text.

        Raises:
          ValueError: a text has no vector, as of `"texts"` an empty one has not.
        """
        vectors = self._encode_documents(texts)
        empty = np.flatnonzero(~vectors.any(axis=1))
        if len(empty):
            raise ValueError(
                "Documents must not be empty: they have no direction, and no cosine. Received: "
                f"{texts[empty[0]]!r} at index {empty[0]}. Leave it out."
            )
        return vectors.tolist()

    def embed_query(self, text: str) -> list[float]:
        """The vector that is compared with those of documents.

        Raises:
          ValueError: the query has nothing but white space.
        """
        if not text.strip():
            raise ValueError(
                f"A query must hold more than white space. Received: {text!r}. Ask for something."
            )
        return self._encode_queries([text])[0].tolist()
