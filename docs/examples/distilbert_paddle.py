"""DistilBERT in Paddle, as one would port it from transformers: the example of align_your_own.md.

Shapes: B samples, N tokens, C width, h heads.
"""

import paddle
from paddle import nn
from paddle.nn import functional as F


class WordEmbedding(nn.Embedding):
    """Rows by number; row 0, the padding, is used but not trained (padding_idx of PyTorch)."""

    def forward(self, ids: paddle.Tensor) -> paddle.Tensor:
        """(B, N) to (B, N, C)."""
        rows = super().forward(ids)
        return paddle.where((ids == 0).unsqueeze(-1), rows.detach(), rows)


class Attention(nn.Layer):
    """Multi-head self-attention with a padding mask."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(dim, dim)
        self.key = nn.Linear(dim, dim)
        self.value = nn.Linear(dim, dim)
        self.out = nn.Linear(dim, dim)

    def split(self, x: paddle.Tensor) -> paddle.Tensor:
        """(B, N, C) to (B, h, N, C / h)."""
        return x.reshape([x.shape[0], x.shape[1], self.heads, -1]).transpose([0, 2, 1, 3])

    def forward(self, x: paddle.Tensor, mask: paddle.Tensor) -> paddle.Tensor:
        """Tokens (B, N, C) and mask (B, N) to (B, N, C)."""
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = q @ k.transpose([0, 1, 3, 2]) / q.shape[-1] ** 0.5  # (B, h, N, N)
        low = paddle.to_tensor(paddle.finfo(scores.dtype).min, dtype=scores.dtype)
        scores = paddle.where(mask[:, None, None, :] == 0, low, scores)
        mixed = F.softmax(scores, axis=-1) @ v  # (B, h, N, C / h)
        return self.out(mixed.transpose([0, 2, 1, 3]).reshape(x.shape))


class Block(nn.Layer):
    """Attention and a feed-forward part, each with its residual and layer norm."""

    def __init__(self, dim: int, heads: int, hidden: int, eps: float) -> None:
        super().__init__()
        self.attention = Attention(dim, heads)
        self.norm1 = nn.LayerNorm(dim, epsilon=eps)
        self.lin1 = nn.Linear(dim, hidden)
        self.lin2 = nn.Linear(hidden, dim)
        self.norm2 = nn.LayerNorm(dim, epsilon=eps)

    def forward(self, x: paddle.Tensor, mask: paddle.Tensor) -> paddle.Tensor:
        """(B, N, C) to (B, N, C)."""
        x = self.norm1(x + self.attention(x, mask))
        return self.norm2(x + self.lin2(F.gelu(self.lin1(x))))


class DistilBert(nn.Layer):
    """Token and position embeddings and a stack of blocks."""

    def __init__(self, vocab=50, positions=16, dim=24, heads=3, hidden=40, layers=2, eps=1e-12):
        super().__init__()
        self.words = WordEmbedding(vocab, dim)
        self.positions = nn.Embedding(positions, dim)
        self.norm = nn.LayerNorm(dim, epsilon=eps)
        self.layers = nn.LayerList([Block(dim, heads, hidden, eps) for _ in range(layers)])

    def forward(self, input_ids: paddle.Tensor, attention_mask: paddle.Tensor) -> paddle.Tensor:
        """Token numbers (B, N) and mask (B, N) to hidden states (B, N, C)."""
        places = paddle.arange(input_ids.shape[1]).unsqueeze(0)
        x = self.norm(self.words(input_ids) + self.positions(places))
        for layer in self.layers:
            x = layer(x, attention_mask)
        return x
