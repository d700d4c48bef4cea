"""The requests of the service."""

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictStr,
    field_validator,
    model_validator,
)

from convert_tf.encoding.signatures import SIGNATURES

Texts = Annotated[list[StrictStr], Field(description="UTF-8 texts, in any number up to the limit")]
Turns = Annotated[
    list[StrictStr | list[StrictStr]],
    Field(description="of each text the turns before: a list, the oldest first, or joined"),
]


Count = Annotated[int, Field(ge=1, strict=True)]


class _Request(BaseModel):
    """A request. A field with a default that is null has its default."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _without_null(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        optional = {name for name, field in cls.model_fields.items() if not field.is_required()}
        return {
            name: value
            for name, value in values.items()
            if value is not None or name not in optional
        }


class EncodeRequest(_Request):
    """For `/encode`."""

    texts: Texts
    kind: Literal[tuple(SIGNATURES)] = "sentence"  # type: ignore[valid-type]
    extra_contexts: Turns | None = None
    format: Literal["float", "base64"] = "float"


class RankRequest(_Request):
    """For `/rank`."""

    contexts: Texts
    responses: Annotated[Texts, Field(json_schema_extra={"minItems": 1})]
    extra_contexts: Turns | None = None
    top_k: Annotated[Count, Field(description="10 by default")] | None = None


class ClassifyRequest(_Request):
    """For `/classify`."""

    texts: Texts
    top_k: Count = 1
    explain: StrictBool = False


class EmbeddingsRequest(_Request):
    """For `/v1/embeddings`. Unknown fields, which other services have, are ignored."""

    model_config = ConfigDict(extra="ignore")

    input: StrictStr | Texts
    model: str
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Count | None = None

    @field_validator("input", mode="before")
    @classmethod
    def _is_text(cls, value: Any) -> Any:
        if isinstance(value, list) and any(isinstance(each, int | list) for each in value):
            raise ValueError(
                "token ids of another vocabulary, not texts (LangChain sends texts with "
                "check_embedding_ctx_length=False)"
            )
        return value
