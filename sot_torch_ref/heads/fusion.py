"""Fusion: class token and pooled word tokens -> scores.

Every head maps Features to (logits, taps). The logits are (B, K), except for SumLoss in train
mode. Taps are the intermediate results by name, in the order of computation, without prefix.
Dropout acts on the flattened word representation, or on the class vector where a head has no other.

The attribute ``cls_fc`` of Concat and AggregateAll is a QUIRK of the published code: it exists,
is saved with the model, and takes no part in the result (its gradient stays None).

Source: specs A.6 and B.1.
"""

import torch
from torch import nn

from sot_torch_ref.features import Features
from sot_torch_ref.heads.pooling import Taps

FC_DIM = 1280

Logits = torch.Tensor | tuple[torch.Tensor, torch.Tensor]


def _class_token(features: Features) -> torch.Tensor:
    if features.cls is None:
        raise ValueError(
            "this head needs a class token, but the features have none; build the head with "
            "has_class_token=False"
        )
    return features.cls


class WordHead(nn.Module):
    """Base of the heads that pool word tokens: pooling, dropout, word classifier.

    Args:
        pooling: Module with ``output_dim``, tokens -> vector.
        num_classes: Number K of scores.
        cls_dim: Channels of the class token; None = the head has no class token and no ``cls_fc``.
        extra_dim: Features that the fusion adds to the word representation.
        dropout: Probability, on the flattened representation.
        mask_padding: Whether the pooling sees the mask (False = published: padding is pooled too).
    """

    def __init__(
        self,
        pooling: nn.Module,
        num_classes: int,
        *,
        cls_dim: int | None,
        extra_dim: int = 0,
        dropout: float = 0.0,
        mask_padding: bool = False,
    ) -> None:
        super().__init__()
        self.pooling = pooling
        self.dropout = nn.Dropout(dropout)
        self.word_fc = nn.Linear(pooling.output_dim + extra_dim, num_classes)
        self.cls_fc = None if cls_dim is None else nn.Linear(cls_dim, num_classes)
        self.mask_padding = mask_padding

    def represent(
        self, tokens: torch.Tensor, mask: torch.Tensor | None
    ) -> tuple[torch.Tensor, Taps]:
        """Tokens (B, N, C) -> representation (B, D) after dropout, and the taps so far."""
        if tokens.shape[1] < 1:
            raise ValueError(
                f"this head needs at least one word token, got tokens {tuple(tokens.shape)}; "
                "pass sequences of two or more tokens"
            )
        vector, taps = self.pooling(tokens, mask if self.mask_padding else None)
        taps["representation"] = vector
        return self.dropout(vector), taps

    def score_words(self, vector: torch.Tensor) -> torch.Tensor:
        """Word logits (B, K); the vector may be float32 in a half precision model."""
        return self.word_fc(vector.to(self.word_fc.weight.dtype))


class SumFC(WordHead):
    """Sum of the word logits and the class logits (two biases)."""

    def forward(self, features: Features) -> tuple[Logits, Taps]:
        """Features -> logits (B, K) and taps."""
        vector, taps = self.represent(features.words, features.mask)
        taps["word_logits"] = self.score_words(vector)
        taps["cls_logits"] = self.cls_fc(_class_token(features))
        taps["logits"] = taps["word_logits"] + taps["cls_logits"]
        return taps["logits"], taps


class SumLoss(WordHead):
    """Two classifiers with a loss each: train mode returns both logits, eval mode their sum."""

    def forward(self, features: Features) -> tuple[Logits, Taps]:
        """Features -> (cls_logits, word_logits) in train mode, their sum in eval mode, and taps."""
        vector, taps = self.represent(features.words, features.mask)
        taps["word_logits"] = self.score_words(vector)
        taps["cls_logits"] = self.cls_fc(_class_token(features))
        taps["logits"] = taps["word_logits"] + taps["cls_logits"]
        if self.training:
            return (taps["cls_logits"], taps["word_logits"]), taps
        return taps["logits"], taps


class Concat(WordHead):
    """One classifier on [class token; word representation]; QUIRK: ``cls_fc`` is unused."""

    def forward(self, features: Features) -> tuple[Logits, Taps]:
        """Features -> logits (B, K) and taps."""
        vector, taps = self.represent(features.words, features.mask)
        joined = torch.cat([_class_token(features).to(vector.dtype), vector], dim=1)  # (B, C + D)
        taps["word_logits"] = self.score_words(joined)
        taps["logits"] = taps["word_logits"]
        return taps["logits"], taps


class AggregateAll(WordHead):
    """The class token is pooled like a word token; QUIRK: ``cls_fc`` is unused."""

    def forward(self, features: Features) -> tuple[Logits, Taps]:
        """Features -> logits (B, K) and taps."""
        tokens, mask = features.words, features.mask
        if self.cls_fc is not None:
            cls = _class_token(features)
            tokens = torch.cat([cls[:, None], tokens], dim=1)  # (B, 1 + N, C)
            if mask is not None:
                mask = torch.cat([torch.ones_like(mask[:, :1]), mask], dim=1)  # (B, 1 + N)
        vector, taps = self.represent(tokens, mask)
        taps["word_logits"] = self.score_words(vector)
        taps["logits"] = taps["word_logits"]
        return taps["logits"], taps


class WordTokens(WordHead):
    """Word tokens only (WordT); the only fusion for a backbone without class token."""

    def forward(self, features: Features) -> tuple[Logits, Taps]:
        """Features -> logits (B, K) and taps."""
        vector, taps = self.represent(features.words, features.mask)
        taps["word_logits"] = self.score_words(vector)
        taps["logits"] = taps["word_logits"]
        return taps["logits"], taps


class ClassToken(nn.Module):
    """Class token only (ClassT): dropout and one linear layer.

    Args:
        dim: Channels C of the class token.
        num_classes: Number K of scores.
        dropout: Probability, on the class token.
    """

    def __init__(self, dim: int, num_classes: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.cls_fc = nn.Linear(dim, num_classes)

    def forward(self, features: Features) -> tuple[Logits, Taps]:
        """Features -> logits (B, K) and taps."""
        logits = self.cls_fc(self.dropout(_class_token(features)))
        return logits, {"cls_logits": logits, "logits": logits}


class FC(nn.Module):
    """Class token -> 1280 features -> scores, without activation.

    Args:
        dim: Channels C of the class token.
        num_classes: Number K of scores.
        dropout: Probability, on the 1280 features.
    """

    def __init__(self, dim: int, num_classes: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.proj = nn.Linear(dim, FC_DIM)
        self.dropout = nn.Dropout(dropout)
        self.cls_fc = nn.Linear(FC_DIM, num_classes)

    def forward(self, features: Features) -> tuple[Logits, Taps]:
        """Features -> logits (B, K) and taps."""
        projected = self.proj(_class_token(features))  # (B, 1280)
        logits = self.cls_fc(self.dropout(projected))
        return logits, {"projected": projected, "cls_logits": logits, "logits": logits}


class Pooler(nn.Module):
    """BERT's own head: dense, tanh, dropout, classifier on the class token.

    Args:
        dim: Channels C of the class token.
        num_classes: Number K of scores.
        dropout: Probability, on the pooled vector.
    """

    def __init__(self, dim: int, num_classes: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.dense = nn.Linear(dim, dim)
        self.dropout = nn.Dropout(dropout)
        self.cls_fc = nn.Linear(dim, num_classes)

    def forward(self, features: Features) -> tuple[Logits, Taps]:
        """Features -> logits (B, K) and taps."""
        pooled = torch.tanh(self.dense(_class_token(features)))  # (B, C)
        logits = self.cls_fc(self.dropout(pooled))
        return logits, {"pooled": pooled, "cls_logits": logits, "logits": logits}


class TwoLayer(nn.Module):
    """RoBERTa's own head: dropout, dense, tanh, dropout, classifier on the class token.

    Args:
        dim: Channels C of the class token.
        num_classes: Number K of scores.
        dropout: Probability, on the class token and on the hidden vector.

    Source: transformers' RobertaClassificationHead.
    """

    def __init__(self, dim: int, num_classes: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.dense = nn.Linear(dim, dim)
        self.dropout = nn.Dropout(dropout)
        self.cls_fc = nn.Linear(dim, num_classes)

    def forward(self, features: Features) -> tuple[Logits, Taps]:
        """Features -> logits (B, K) and taps."""
        token = self.dropout(_class_token(features))
        pooled = torch.tanh(self.dense(token))  # (B, C)
        logits = self.cls_fc(self.dropout(pooled))
        return logits, {"pooled": pooled, "cls_logits": logits, "logits": logits}


class Score(nn.Module):
    """GPT's own head: one linear layer without bias on the class token.

    Args:
        dim: Channels C of the class token.
        num_classes: Number K of scores.
        dropout: Probability, on the class token.

    Source: transformers' OpenAIGPTForSequenceClassification.
    """

    def __init__(self, dim: int, num_classes: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.cls_fc = nn.Linear(dim, num_classes, bias=False)

    def forward(self, features: Features) -> tuple[Logits, Taps]:
        """Features -> logits (B, K) and taps."""
        logits = self.cls_fc(self.dropout(_class_token(features)))
        return logits, {"cls_logits": logits, "logits": logits}


class Spans(nn.Module):
    """Question answering: start and end score of every token, class token included.

    Args:
        dim: Channels C of the tokens.
        dropout: Probability, on the tokens.

    Source: specs C.4 (BertForQuestionAnswering).
    """

    def __init__(self, dim: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.word_fc = nn.Linear(dim, 2)

    def forward(self, features: Features) -> tuple[Logits, Taps]:
        """Features -> (start (B, S), end (B, S)) and taps."""
        parts = [_class_token(features)[:, None], features.words]
        scores = self.word_fc(self.dropout(torch.cat(parts, dim=1)))  # (B, S, 2)
        start, end = scores.unbind(dim=-1)
        return (start, end), {"span_logits": scores, "logits": start + end}
