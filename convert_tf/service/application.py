"""The web application of `convert-tf serve`: a model that answers JSON requests over HTTP."""

import asyncio
import base64
import contextlib
import json
import os
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from fastapi import FastAPI, Response, Security
from fastapi.responses import PlainTextResponse
from fastapi.security import HTTPBearer
from prometheus_client import generate_latest
from pydantic import BaseModel, Field, StrictBool, StrictStr, field_validator, model_validator

from convert_tf.encoding.sentence_encoder import SentenceEncoder
from convert_tf.encoding.signatures import SIGNATURES
from convert_tf.intents.loading import load_classifier
from convert_tf.intents.predictor import MAX_EXPLAINED_WORDS, Answer, answer_texts
from convert_tf.numerics.vectors import dot_products, unit_rows
from convert_tf.service.batching import Batcher, Limits
from convert_tf.service.middleware import HANDLERS, REFUSALS, Counters, Middleware, RefusedError

_MAX_RESULTS, _MAX_RESULT_CHARACTERS = 100_000, 16 * 2**20  # limits for the answer to a request
_MAX_EXPLAINED_WORDS = 2_000  # maximum number of words to explain per request

Texts = Annotated[list[StrictStr], Field(description="UTF-8 texts; their number is limited")]
Turns = Annotated[
    list[StrictStr | list[StrictStr]],
    Field(
        description=(
            "the earlier turns of each text: a list, the oldest first, or a single joined string"
        )
    ),
]
Count = Annotated[int, Field(ge=1, strict=True)]


class _Request(BaseModel, extra="forbid"):
    """Base class of request bodies. If a field with a default is null, the default is used."""

    @model_validator(mode="before")
    @classmethod
    def _without_null(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        optional = {name for name, field in cls.model_fields.items() if not field.is_required()}
        left_out = {name for name in optional & {*values} if values[name] is None}
        return {name: value for name, value in values.items() if name not in left_out}


class EncodeRequest(_Request):
    """Body of a request to `/encode`."""

    texts: Texts
    kind: Literal[tuple(SIGNATURES)] = "sentence"  # type: ignore[valid-type]
    extra_contexts: Turns | None = None
    format: Literal["float", "base64"] = "float"


class RankRequest(_Request):
    """Body of a request to `/rank`."""

    contexts: Texts
    responses: Annotated[Texts, Field(min_length=1)]
    extra_contexts: Turns | None = None
    top_k: Count = 10


class ClassifyRequest(_Request):
    """Body of a request to `/classify`."""

    texts: Texts
    top_k: Count = 1
    explain: StrictBool = False


class EmbeddingsRequest(_Request, extra="ignore"):
    """Body of a request to `/v1/embeddings`.

    Unknown fields are ignored, because clients also send fields for other services.
    """

    input: StrictStr | Texts
    model: str
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[
        Count | None,
        Field(
            description=(
                "number of dimensions of the returned vectors. If it is smaller than that of the "
                "model's vectors, the first dimensions of the similarity vectors are returned"
            )
        ),
    ] = None

    @field_validator("input", mode="before")
    @classmethod
    def _is_text(cls, value: Any) -> Any:
        if isinstance(value, list) and any(isinstance(entry, int | list) for entry in value):
            raise ValueError(
                "these are token ids of another vocabulary, not texts (LangChain sends texts with "
                "check_embedding_ctx_length=False)"
            )
        return value


def served_classifier(path: str, *, module: str, encoder: SentenceEncoder, max_texts: int) -> Any:
    """Load a classifier, which keeps only a limited number of encodings in memory.

    Args:
      path: folder from `convert-tf intent train`, or `.onnx` file from `convert-tf intent export`.
      module: path of the encoder that is served.
      encoder: the encoder at this path. If the classifier was trained with it, the classifier uses
        this encoder instead of loading it again, even if it is not at the recorded path.
      max_texts: number of encodings to keep. This should be the number of texts per batch, because
        the encodings are read twice: for the intent, and then for the confidence.

    Returns:
      An `IntentClassifier`, a `MultiIntentClassifier` or an `IntentFile`.

    Raises:
      ValueError: if there is no such classifier, or the encoder it was trained with has changed.
    """
    from convert_tf.intents.encodings import IntentEncodings
    from convert_tf.intents.folder import MissingEncoderError

    try:
        classifier = load_classifier(path, max_texts=max_texts)
    except MissingEncoderError as error:
        try:
            classifier = load_classifier(path, encoder=module, max_texts=max_texts)
        except ValueError:
            raise error from None  # another encoder is served
    if not hasattr(classifier, "set_params"):  # this is an .onnx file, which contains its encoder
        return classifier
    paths = classifier.encoder if isinstance(classifier.encoder, list) else [classifier.encoder]
    encoders = [encoder if os.path.samefile(other, module) else other for other in paths]
    return classifier.set_params(
        encoder=IntentEncodings(encoders, kind=classifier.kind_, max_texts=max_texts)
    )


class Model(NamedTuple):
    """The models that a service runs.

    Attributes:
      encoder: encoder that computes vectors.
      name: name of the encoder in requests to `/v1/embeddings`.
      classifier: classifier for `/classify`, from `served_classifier`, or None.
    """

    encoder: SentenceEncoder
    name: str
    classifier: Any = None


def opened_model(
    path: str, intents: str | None, *, name: str, compute_dtype: str, max_texts: int
) -> Model:
    """Open the models for a service.

    Args:
      path: path of the encoder. If it equals `intents`, the file is opened only once.
      intents: path of the classifier, or None.
      name: name of the encoder, as in `Model`.
      compute_dtype: number format in which the encoder computes, as in `SentenceEncoder`.
      max_texts: number of encodings that the classifier keeps, as in `served_classifier`.

    Raises:
      ValueError: if one of the models cannot be opened.
    """
    if path == intents and path.endswith(".onnx"):
        if compute_dtype != "auto":
            raise ValueError(
                f"compute_dtype={compute_dtype!r} has no effect on {path!r}, whose number format "
                "was chosen when it was exported. Omit compute_dtype."
            )
        classifier = load_classifier(path, max_texts=max_texts)
        return Model(classifier.sentence_encoder, name, classifier)
    encoder = SentenceEncoder(path, compute_dtype=compute_dtype)
    if intents is None:
        return Model(encoder, name)
    classifier = served_classifier(intents, module=path, encoder=encoder, max_texts=max_texts)
    return Model(encoder, name, classifier)


def make_application(
    model: Model,
    limits: Limits | None = None,
    *,
    api_keys: Sequence[str] = (),
    on_access: Callable[[dict[str, Any]], None] | None = None,
    english_only: bool = False,
) -> FastAPI:
    """Return the web application for a model.

    Args:
      model: encoder and classifier to serve.
      limits: limits for requests, or None for the defaults.
      api_keys: API keys, one of which each request must send. If there are none, requests need no
        key.
      on_access: function that is called after each request with facts about the request; see
        `middleware.Middleware`.
      english_only: whether `/classify` answers only English texts, as in `answer_texts`.

    Returns:
      An ASGI application with `/encode`, `/rank`, `/classify`, `/v1/embeddings`, `/v1/models`,
      `/health`, `/metrics`, and `/docs`, which describes these requests.
    """
    limits = limits or Limits()
    service = _Service(model, limits, english_only=english_only)

    @contextlib.asynccontextmanager
    async def running(_: FastAPI) -> AsyncIterator[None]:
        async with service.batcher:
            yield

    application = FastAPI(
        title="convert_tf", lifespan=running, responses=REFUSALS, exception_handlers=HANDLERS
    )
    application.add_middleware(
        Middleware,
        counters=service.counters,
        max_bytes=limits.max_bytes,
        api_keys=api_keys,
        on_access=on_access,
    )
    # This entry only describes the key in `/docs`. The middleware checks the key of a request
    # before it reads the body.
    keys: dict[str, Any] = {"dependencies": [Security(HTTPBearer(auto_error=False))]}
    guarded = keys if api_keys else {}
    for path in ("encode", "rank", "classify"):
        application.post(f"/{path}", **guarded)(getattr(service, path))
    application.post("/v1/embeddings", **guarded)(service.embeddings)
    application.get("/v1/models", **guarded)(service.models)
    application.get("/v1/models/{name:path}", **guarded)(service.model)
    application.get("/metrics", response_class=PlainTextResponse, **guarded)(service.metrics)
    application.get("/health")(service.health)
    application.head("/health", include_in_schema=False)(service.health)
    return application


class _Service:
    """The service, with a method for each kind of request."""

    def __init__(self, model: Model, limits: Limits, *, english_only: bool) -> None:
        self._encoder, self._name, self._classifier = model
        self._limits = limits
        functions: dict[str, Any] = {
            kind: partial(self._encoder.encode, kind=kind) for kind in self._encoder.kinds
        }
        functions["context"] = self._encode_contexts
        answers = partial(answer_texts, self._classifier, english_only=english_only)
        functions["classify"] = answers
        functions["explain"] = partial(answers, explains=True)
        self._explaining = asyncio.Lock()  # explanations are computed one text at a time
        self.counters = Counters(lambda: self.batcher.queued)
        self.batcher = Batcher(functions, limits, on_batch=self.counters.batch)

    async def encode(self, request: EncodeRequest) -> Response:
        """Return the vectors of texts: `{"vectors": [[…], …], "dim": n}`."""
        if request.kind not in (kinds := self._encoder.kinds):
            raise RefusedError(
                422,
                f"This model has no vectors of the kind {request.kind}. Choose one of these kinds: "
                f"{', '.join(kinds)}.",
            )
        if request.kind == "context":
            vectors = await self._contexts(request.texts, request.extra_contexts)
        elif request.extra_contexts is None:
            vectors = await self._vectors(request.kind, request.texts)
        else:
            raise RefusedError(
                422,
                f"Vectors of the kind {request.kind} do not include earlier turns. Omit "
                "extra_contexts, or choose the kind context.",
            )
        return await _answer(_encoded, vectors, request.format)

    async def rank(self, request: RankRequest) -> Response:
        """Return the best responses for each context, with their cosines, the best first."""
        self._check(request.contexts)
        self._check(request.responses)
        top_k = min(request.top_k, len(request.responses))
        self._check_results(len(request.contexts), top_k, [*map(len, request.responses)])
        contexts = await self._contexts(request.contexts, request.extra_contexts)
        responses = await self._vectors("response", request.responses)
        return await _answer(_ranked, contexts, responses, request.responses, top_k)

    async def classify(self, request: ClassifyRequest) -> Response:
        """Return the intent of each text and its confidence. The intent of an empty text is null.

        The intent of an out-of-scope text is the classifier's label for such texts, by default
        `"oos"`. If the service was started with `--english_only`, a text in another language gets
        the intent null and its `language`.
        """
        if self._classifier is None:
            raise RefusedError(
                404, "This service has no classifier. Start convert-tf serve with --intents."
            )
        self._check(request.texts)
        top_k = min(request.top_k, len(self._classifier.classes_))
        self._check_results(len(request.texts), top_k)
        if request.explain:
            if self._classifier.decision.has_several:
                raise RefusedError(
                    422,
                    "A classifier that allows several intents per text cannot explain its answers. "
                    "Omit explain.",
                )
            # To explain a text, the service encodes it once without each of its words, up to the
            # limit in `Predictor.explain`.
            words = sum(min(len(text.split()), MAX_EXPLAINED_WORDS) for text in request.texts)
            _check_limit(words, _MAX_EXPLAINED_WORDS, "words to explain", "Split the request.")
            given = []
            for text in request.texts:  # one by one, so that other requests are answered in between
                async with self._explaining:
                    given += await self.batcher("explain", [text])
        else:
            given = await self.batcher("classify", request.texts)
        return await _answer(_classified, given, top_k)

    async def embeddings(self, request: EmbeddingsRequest) -> Response:
        """Return vectors of length 1, for clients of OpenAI's interface.

        By default, the vectors are of the kind `sentence`. If a request asks for fewer `dimensions`
        and the model has similarity vectors, the answer contains their first dimensions.
        """
        self._check_name(request.model)
        texts = [request.input] if isinstance(request.input, str) else request.input
        dim = request.dimensions
        vectors = await self._vectors("sentence", texts)
        if dim is not None and len(vectors) and dim != vectors.shape[1]:
            vectors = await self._cut(texts, dim, vectors.shape[1])
        return await _answer(_embedded, vectors, request.encoding_format, self._name)

    async def _cut(self, texts: Sequence[str], dim: int, width: int) -> np.ndarray:
        """Return the first `dim` dimensions of the texts' similarity vectors."""
        remedy = "Omit dimensions."
        if "similarity" in self._encoder.kinds:
            vectors = await self._vectors("similarity", texts)
            if dim <= vectors.shape[1]:
                return vectors[:, :dim]
            remedy = f"Omit dimensions, or pass at most {vectors.shape[1]:,}."
        raise RefusedError(
            400, f"The vectors have {width:,} dimensions and cannot be cut to {dim:,}. {remedy}"
        )

    async def models(self) -> dict[str, Any]:
        """Return the name of the model that answers `/v1/embeddings`."""
        return {"object": "list", "data": [await self.model(self._name)]}

    async def model(self, name: str) -> dict[str, Any]:
        """Return a description of the model with this name."""
        self._check_name(name)
        return {"id": name, "object": "model", "created": 0, "owned_by": "convert_tf"}

    def _check_name(self, name: str) -> None:
        if name != self._name:
            raise RefusedError(
                404,
                f"This service has the model {self._name!r}, not {name!r}. Use that name, or start "
                "convert-tf serve with --name.",
            )

    async def health(self) -> dict[str, Any]:
        """Return whether the service is ready to answer requests."""
        if not self.batcher.is_running:
            raise RefusedError(503, "The service is starting or stopping. Try again in a second.")
        return {"status": "ok", "model": self._name, "queued": self.batcher.queued}

    async def metrics(self) -> Response:
        """Return counts for Prometheus."""
        counts = generate_latest(self.counters.registry)
        return Response(counts, media_type="text/plain; version=0.0.4")

    def _encode_contexts(self, rows: list[tuple[str, Any]]) -> np.ndarray:
        texts, extra = zip(*rows, strict=True)
        return self._encoder.encode_contexts(texts, extra if self._encoder.reads_history else None)

    async def _vectors(self, kind: str, rows: Sequence[Any]) -> np.ndarray:
        self._check([row[0] if isinstance(row, tuple) else row for row in rows])
        answers = await self.batcher(kind, rows)
        vectors = np.stack(answers) if answers else np.zeros((0, 0), np.float32)
        if not np.isfinite(vectors).all():  # JSON has no NaN and no infinity
            raise ValueError(
                "The encoder returned NaN or infinite vectors. Use another checkpoint."
            )
        return vectors

    async def _contexts(self, texts: Sequence[str], extra: Sequence[Any] | None) -> np.ndarray:
        if extra is not None and not self._encoder.reads_history:
            raise RefusedError(422, "This model does not read earlier turns. Omit extra_contexts.")
        if extra is not None and len(extra) != len(texts):
            raise RefusedError(
                422,
                f"There are {len(texts)} texts but {len(extra)} extra_contexts. Pass one "
                'extra_context for each text, and "" where there are no earlier turns.',
            )
        for turns in extra or ():
            self._check([turns] if isinstance(turns, str) else turns)
        earlier = extra or [""] * len(texts)
        return await self._vectors("context", [*zip(texts, earlier, strict=True)])

    def _check(self, texts: Sequence[str]) -> None:
        limits = self._limits
        _check_limit(len(texts), limits.max_texts, "texts in a request", "Split the request.")
        longest = max(map(len, texts), default=0)
        _check_limit(longest, limits.max_characters, "characters in a text", "Shorten it.")

    def _check_results(self, asked: int, top_k: int, lengths: Sequence[int] = ()) -> None:
        """Refuse a request if its answer would take too much memory.

        Args:
          asked: number of contexts or texts in the request.
          top_k: number of results for each context or text.
          lengths: number of characters in each text that may be repeated in the results.
        """
        remedy = "Lower top_k, or split the request."
        _check_limit(asked * top_k, _MAX_RESULTS, "results", remedy)
        characters = asked * sum(sorted(lengths)[-top_k:])
        _check_limit(characters, _MAX_RESULT_CHARACTERS, "characters in results", remedy)


def _check_limit(number: int, limit: int, what: str, remedy: str) -> None:
    if number > limit:
        raise RefusedError(
            413, f"There are {number:,} {what}, but at most {limit:,} are allowed. {remedy}"
        )


# Answers are encoded as JSON in other threads, row by row. A single call for a whole answer would
# block the interpreter. FastAPI's own encoder is slow, because it visits each number in each
# vector.


async def _answer(write: Callable[..., str], *values: Any) -> Response:
    text = await asyncio.to_thread(write, *values)
    return Response(text, media_type="application/json")


def _rows(rows: Iterable[Any]) -> str:
    return f"[{', '.join([json.dumps(row) for row in rows])}]"


def _encoded(vectors: np.ndarray, form: str) -> str:
    dim = len(vectors[0]) if len(vectors) else 0
    return f'{{"vectors": {_rows(_written(vector, form) for vector in vectors)}, "dim": {dim}}}'


def _ranked(contexts: np.ndarray, responses: np.ndarray, texts: Sequence[str], top_k: int) -> str:
    def ranked(scores: np.ndarray) -> list[dict[str, Any]]:
        best = np.argsort(-scores, kind="stable")[:top_k]
        return [{"index": int(i), "response": texts[i], "score": float(scores[i])} for i in best]

    rows = map(ranked, dot_products(contexts, responses) if len(contexts) else [])
    return f'{{"rankings": {_rows(rows)}}}'


def _classified(given: Sequence[Answer], top_k: int) -> str:
    return f'{{"answers": {_rows(answer.described(top_k) for answer in given)}}}'


def _embedded(vectors: np.ndarray, form: str, name: str) -> str:
    data = _rows(
        {"object": "embedding", "index": i, "embedding": _written(vector, form)}
        for i, vector in enumerate(unit_rows(vectors))
    )
    usage = {"prompt_tokens": 0, "total_tokens": 0}  # tokens are not counted
    rest = json.dumps({"object": "list", "model": name, "usage": usage})
    return f'{{"data": {data}, {rest[1:]}'


def _written(vector: np.ndarray, form: str) -> Any:
    """Return a vector as JSON numbers, or as the base64 of little-endian float32."""
    if form == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii")
    return vector.astype(float).round(7).tolist()
