"""A language model with the head of its pre-training.

Shape legend: B samples, S tokens, P masked words of a sample, V words.
"""

from __future__ import annotations

import operator

import paddle
from paddle import nn

from sot_paddle.backbones.families import TextBackbone
from sot_paddle.backbones.text import ACTIVATION_FUNCTIONS
from sot_paddle.config import EncoderConfig
from sot_paddle.heads.pretraining import MaskedWordHead, PretrainingHead, PretrainingHeadConfig

_WORDS = "word_embeddings.weight"


class PretrainingModel(nn.Layer):
    """Encoder, head of the masked words (tied to the word embeddings), next sentence.

    The row of the padding token is trained here: no masked word and no valid token looks at
    padding, and as one of V words its score has a gradient in both originals.

    Source: specs.md D.1, E.3.
    """

    def __init__(
        self,
        backbone: TextBackbone,
        encoder: EncoderConfig,
        head: PretrainingHeadConfig,
        *,
        name: str = "",
    ) -> None:
        super().__init__()
        self.name, self.backbone = name, backbone
        self.encoder_config = self.backbone_config = encoder
        self.head_config = head
        body = backbone.encoder(encoder)
        self.add_sublayer(backbone.prefix, body)
        for hook in body.padding_hooks:
            hook.remove()
        (self._words_name,) = [n for n, _ in body.named_parameters() if n.endswith(_WORDS)]
        words = MaskedWordHead(
            encoder.hidden_size,
            self.words().shape[1],
            encoder.vocab_size,
            activation=ACTIVATION_FUNCTIONS[encoder.hidden_act],
            epsilon=encoder.layer_norm_eps,
            std=encoder.initializer_range,
        )
        self.head = PretrainingHead(words, encoder.hidden_size, head, std=encoder.initializer_range)

    def words(self) -> paddle.Tensor:
        """The word embeddings (V, E)."""
        return operator.attrgetter(self._words_name)(getattr(self, self.backbone.prefix))

    def forward(
        self,
        input_ids: paddle.Tensor,
        token_type_ids: paddle.Tensor | None = None,
        attention_mask: paddle.Tensor | None = None,
        positions: paddle.Tensor | None = None,
        targets: paddle.Tensor | None = None,
    ):
        """Score masked words.

        Args:
            input_ids: (B, S) integer, words masked.
            token_type_ids: (B, S) integer or None (zeros).
            attention_mask: (B, S), 1 where valid, or None (all valid).
            positions: (B, P) places of the masked words.
            targets: (B, 2 P + 1), see `sot_paddle.tasks.losses`; given in evaluation.

        Returns:
            Scores of the words (B, P, V), and those of the next sentence (B, 2) where it is judged;
            with ``targets`` the sums (B, 5) of :func:`~.pretraining_loss.row_sums` instead.
        """
        encoder = getattr(self, self.backbone.prefix)
        features = encoder(input_ids, token_type_ids, attention_mask)
        scores = self.head(features, positions, self.words())
        return scores if targets is None else self.judge(scores, targets)

    judge = None
    """(scores, targets) to sums; set by the task, which knows losses."""
