"""BERT with the heads of its pre-training, scoring every token; the encoder is a classifier's.

Legend: B batch, S tokens, C hidden size, E embedding size, V words.
"""

import torch
from torch import nn
from torch.nn import functional as F

from sot_torch_ref.backbones.text import TextClassifier

IGNORED = -100


class Predictions(nn.Module):
    """Dense C -> E, GELU, layer norm, and the decoder tied to the word embeddings.

    Args:
        hidden_size: C.
        embedding: The word embeddings (V, E).
        eps: Epsilon of the layer norm.

    Source: specs D.1 (names of transformers' cls.predictions) and E.
    """

    def __init__(self, hidden_size: int, embedding: nn.Embedding, eps: float) -> None:
        super().__init__()
        vocab_size, size = embedding.weight.shape
        self.transform = nn.Linear(hidden_size, size)
        self.LayerNorm = nn.LayerNorm(size, eps=eps)
        self.bias = nn.Parameter(torch.zeros(vocab_size))
        self.tied = [embedding]  # in a list: the classifier's, not a module of this one

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Map (B, S, C) to (B, S, V)."""
        hidden = self.LayerNorm(F.gelu(self.transform(hidden)))
        return F.linear(hidden, self.tied[0].weight, self.bias)


class Pretraining(nn.Module):
    """A classifier's encoder with the masked word head, and the next sentence head if asked.

    Args:
        classifier: Model whose encoder is trained; its own head is left alone.
        next_sentence: Whether the second task is there.
    """

    def __init__(self, classifier: TextClassifier, *, next_sentence: bool) -> None:
        super().__init__()
        config = classifier.encoder_config
        self.classifier = classifier
        embedding = classifier.encoder.embeddings.word_embeddings
        self.predictions = Predictions(config.hidden_size, embedding, config.layer_norm_eps)
        if next_sentence:
            self.pooler = nn.Linear(config.hidden_size, config.hidden_size)
            self.seq_relationship = nn.Linear(config.hidden_size, 2)

    def forward(
        self, ids: torch.Tensor, types: torch.Tensor, mask: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Scores of every token (B, S, V), and of the next sentence (B, 2) or None."""
        features, _ = self.classifier.encode(ids, types, mask)
        hidden = torch.cat((features.cls[:, None], features.words), dim=1)
        scores = self.predictions(hidden)
        if not hasattr(self, "pooler"):
            return scores, None
        return scores, self.seq_relationship(torch.tanh(self.pooler(features.cls)))


def masked_word_loss(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy over the tokens whose label is not -100.

    Args:
        scores: (B, S, V).
        labels: (B, S).

    Source: specs E.3.
    """
    return F.cross_entropy(scores.flatten(0, 1), labels.flatten(), ignore_index=IGNORED)


def instance_loss(
    scores: torch.Tensor,
    next_scores: torch.Tensor,
    instance: dict[str, torch.Tensor],
    *,
    plain_mean: bool = False,
) -> torch.Tensor:
    """Both losses of the original: sum(w ce) / (sum(w) + 1e-5), plus the mean of the next sentence.

    Args:
        scores: (B, S, V).
        next_scores: (B, 2).
        instance: Features of the original's records, stacked.
        plain_mean: The Paddle port's mean over all P slots.

    Source: specs D.1.
    """
    log_probs = scores.log_softmax(dim=2)
    rows = torch.arange(len(scores))[:, None]
    picked = log_probs[rows, instance["masked_lm_positions"], instance["masked_lm_ids"]]  # (B, P)
    weights = instance["masked_lm_weights"].to(scores.dtype)
    words = -picked.mean() if plain_mean else -(weights * picked).sum() / (weights.sum() + 1e-5)
    following = next_scores.log_softmax(dim=1)
    labels = instance["next_sentence_labels"].flatten()
    return words - following[torch.arange(len(labels)), labels].mean()


def mask_words(
    ids: torch.Tensor,
    uniform: torch.Tensor,
    words: torch.Tensor,
    *,
    special: list[int],
    mask: int,
    pad: int,
    probability: float = 0.15,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The collator of a masked language model, its random numbers given.

    Args:
        ids: (B, S).
        uniform: (B, 3, S) in [0, 1): Chosen, replaced by [MASK], replaced by a random word.
        words: (B, S) random words.
        special: Ids never chosen, beside padding.
        mask: Id of [MASK].
        pad: Id of padding.
        probability: Of being chosen.

    Returns:
        Inputs, labels (-100 where not chosen) and attention mask, each (B, S); the mask is that of
        the inputs after masking.

    Source: specs E.3.
    """
    labels, inputs = ids.clone(), ids.clone()
    probabilities = torch.full(ids.shape, probability, dtype=uniform.dtype)
    for token in (*special, pad):
        probabilities.masked_fill_(ids == token, 0.0)
    chosen = uniform[:, 0] < probabilities
    labels[~chosen] = IGNORED
    replaced = (uniform[:, 1] < 0.8) & chosen
    inputs[replaced] = mask
    randomised = (uniform[:, 2] < 0.5) & chosen & ~replaced
    inputs[randomised] = words[randomised]
    return inputs, labels, (inputs != pad).long()
