"""A sentence encoder of the ConveRT kind (arXiv 1911.03688) in PyTorch, for transformers.

`convert-tf export --format huggingface` copies this file next to the weights. transformers runs it
if you pass `trust_remote_code=True`. It does not need convert_tf.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize, silu
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

GELU_SLOPE = 1.702
NORM_EPSILON = 1e-6


class ConvertConfig(PretrainedConfig):
    """Sizes as in `convert_tf.config.model.ModelConfig`, and the ids of special tokens."""

    model_type = "convert_tf"


class Block(nn.Module):
    """Attention over the tokens within `reach`, and a feed-forward layer."""

    def __init__(self, config: ConvertConfig, reach: int) -> None:
        super().__init__()
        dim, width = config.embedding_dim, config.num_heads * config.attention_dim
        self.heads, self.reach = config.num_heads, reach
        self.query_key = nn.Linear(dim, 2 * width, bias=False)
        self.relative_bias = nn.Parameter(torch.zeros(self.heads, 2 * reach + 1))
        self.attention_norm = nn.LayerNorm(dim, eps=NORM_EPSILON)
        self.hidden = nn.Linear(dim, config.feed_forward_dim)
        self.output = nn.Linear(config.feed_forward_dim, dim)
        self.output_norm = nn.LayerNorm(dim, eps=NORM_EPSILON)

    def forward(self, x: Tensor, is_text: Tensor) -> Tensor:
        """Both are `[batch, tokens]`; x has a last axis of `embedding_dim`."""
        queries, keys = (split_heads(y, self.heads) for y in self.query_key(x).chunk(2, dim=-1))
        scores = queries @ keys.transpose(-1, -2) / queries.shape[-1] ** 0.5
        places = torch.arange(x.shape[1], device=x.device)
        distance = places[None, :] - places[:, None]
        index = (distance + self.reach).clamp(0, 2 * self.reach)
        mask = (distance.abs() <= self.reach) & (is_text[:, None, :] == is_text[:, :, None])
        weights = softmax(scores + self.relative_bias[:, index], mask)
        attended = weights @ split_heads(x, self.heads)
        x = self.attention_norm(x + attended.transpose(1, 2).flatten(2))
        return self.output_norm(x + self.output(fast_gelu(self.hidden(x))))


class SideNetwork(nn.Module):
    """Map a text's reduced encoding to its encoding as a context or a response, of length 1."""

    def __init__(self, config: ConvertConfig) -> None:
        super().__init__()
        width = config.reduction_heads * config.embedding_dim
        widths = [width] + [config.side_hidden_dim] * config.side_layers
        self.hidden = nn.ModuleList(map(nn.Linear, widths, widths[1:]))
        self.norms = nn.ModuleList(nn.LayerNorm(w, eps=NORM_EPSILON) for w in widths[1:])
        self.linear = nn.Linear(widths[-1], config.encoding_dim)
        self.use_skip = config.use_side_skip

    def forward(self, x: Tensor) -> Tensor:
        for hidden, norm in zip(self.hidden, self.norms, strict=True):
            y = fast_gelu(hidden(x))
            x = norm(x + y if self.use_skip and x.shape == y.shape else y)
        return unit_rows(self.linear(x))


class SimilarityMap(nn.Linear):
    """From r to vectors for similarity; `quantize_dynamic`, which hides weights, leaves it."""


class ConvertModel(PreTrainedModel):
    """Encodes texts. Every token of the output holds the vector of the token's text.

    Call arguments:
      input_ids, attention_mask: int64 `[batch, tokens]`.

    Returns:
      `last_hidden_state`, `[batch, tokens, hidden_size]`, in the model's number format. Narrower
      vectors, those that a prompt asks for, end with zeros.
    """

    config_class = ConvertConfig

    def __init__(self, config: ConvertConfig) -> None:
        super().__init__(config)
        dim, reduction = config.embedding_dim, config.reduction_heads * config.reduction_dim
        self.tokens = nn.Embedding(config.unknown_id + 1, dim)
        self.positions = nn.ModuleList(nn.Embedding(n, dim) for n in config.position_table_sizes)
        self.norm = nn.LayerNorm(dim, eps=NORM_EPSILON)
        self.blocks = nn.ModuleList(Block(config, r) for r in config.max_relative_attention)
        self.reduction = nn.Linear(dim, 2 * reduction, bias=False)
        self.sides = nn.ModuleDict({n: SideNetwork(config) for n in ("context", "response")})
        if config.similarity_dim:
            self.similarity = SimilarityMap(config.hidden_size, config.similarity_dim, bias=False)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        """Return the table of subwords, whose last row is that of unknown characters."""
        return self.tokens

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.tokens = value

    def _init_weights(self, module: nn.Module) -> None:
        """Leave weights as they are: they are always loaded."""

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, **_: Any
    ) -> BaseModelOutput:
        config = self.config
        if attention_mask is None:
            attention_mask = (input_ids != config.pad_token_id).long()
        ids = input_ids * attention_mask.bool()
        is_text = attention_mask.bool() & (ids <= config.unknown_id)
        reduced = self._reduced(ids * is_text, is_text)
        kinds = ids.amax(dim=1)
        vectors = self._sentences(reduced)
        for name, kind_id in config.kind_ids.items():
            rows = kinds == kind_id
            if name != "sentence" and bool(rows.any()):
                vectors = vectors.clone()
                of_kind = padded(self._of_kind(name, reduced[rows]), config.hidden_size)
                vectors[rows] = of_kind.to(vectors.dtype)
        shape = (-1, input_ids.shape[1], -1)
        return BaseModelOutput(last_hidden_state=vectors[:, None].expand(shape))

    def _reduced(self, ids: Tensor, is_text: Tensor) -> Tensor:
        """√N reduction of the tokens of each text, `[batch, hidden_size]` (§2.1)."""
        x = self.tokens(ids) * self.config.embedding_dim**0.5
        places = (is_text.cumsum(dim=1) - 1).clamp(min=0)
        for table in self.positions:
            x = x + table(places % table.num_embeddings)
        x = self.norm(x)
        for block in self.blocks:
            x = block(x, is_text)
        heads = self.config.reduction_heads
        queries, keys = (split_heads(y, heads) for y in self.reduction(x).chunk(2, dim=-1))
        scores = queries @ keys.transpose(-1, -2)
        mask = is_text[:, None, :] == is_text[:, :, None]
        weights = softmax(scores, mask)
        pooling = (is_text / is_text.sum(dim=1, keepdim=True).clamp(min=1).sqrt()).to(x.dtype)
        pooled = (pooling[:, None, None] @ weights) @ x[:, None]  # [batch, heads, 1, dim]
        return pooled.flatten(1)

    def _sentences(self, reduced: Tensor) -> Tensor:
        """The vector without a prompt: the reduced encoding, leaning towards similarity."""
        if not self.config.similarity_dim:
            return reduced
        kernel = self.similarity.weight
        read = self.similarity(reduced) @ unit_rows(kernel)
        return self.config.sentence_scale * (reduced + read)

    def _of_kind(self, name: str, reduced: Tensor) -> Tensor:
        if name == "reduced":
            return reduced
        if name == "similarity":
            return unit_rows(self.similarity(reduced))
        return self.sides[name](reduced)


def fast_gelu(x: Tensor) -> Tensor:
    """Return x · σ(1.702 x)."""
    return silu(GELU_SLOPE * x) / GELU_SLOPE


def softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Softmax of `[batch, heads, queries, keys]` over the keys in `mask`, computed in float32."""
    masked = scores.float().masked_fill(~mask[:, None], -1e30)
    return masked.softmax(dim=-1).to(scores.dtype)


def unit_rows(x: Tensor) -> Tensor:
    """Rows of length 1. Squares are added in float32, because 16 bits end at 65,504."""
    return normalize(x.float(), dim=-1).to(x.dtype)


def split_heads(x: Tensor, heads: int) -> Tensor:
    """`[batch, tokens, heads * dim]` to `[batch, heads, tokens, dim]`."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def padded(vectors: Tensor, size: int) -> Tensor:
    """Vectors with zeros at the end, up to `size` numbers."""
    return nn.functional.pad(vectors, (0, size - vectors.shape[-1]))


ConvertConfig.register_for_auto_class()
ConvertModel.register_for_auto_class("AutoModel")
