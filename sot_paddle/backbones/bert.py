"""BERT: paddlenlp's encoder, corrected to the reference, with any head of the project.

Shape legend: B samples, S tokens, C hidden size, K classes.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import paddle
from paddle import nn
from paddle.nn import functional as F
from paddlenlp.transformers import BertConfig, BertModel

from sot_paddle.backbones.inputs import TextCheck
from sot_paddle.config import EncoderConfig, HeadConfig, build_record, near_names
from sot_paddle.features import Features, Taps, record
from sot_paddle.heads import build_head

_tanh_gelu = functools.partial(F.gelu, approximate=True)

ACTIVATION_FUNCTIONS: Mapping[str, Callable[[paddle.Tensor], paddle.Tensor]] = {
    "gelu": F.gelu,  # the erf form
    "gelu_new": _tanh_gelu,
    "gelu_pytorch_tanh": _tanh_gelu,
    "relu": F.relu,
    "silu": F.silu,
    "tanh": F.tanh,
}
"""Name of ``sot_paddle.config.ACTIVATIONS`` -> its function."""


def _zero_row_hook(row: int):
    """Gradient hook that zeroes one row.

    REF: torch's Embedding(padding_idx) uses the row in the forward pass and gives it no
    gradient. PADDLE: paddlenlp trains it, and Paddle's own padding_idx zeroes the output.
    """

    def hook(gradient: paddle.Tensor) -> paddle.Tensor:
        with paddle.no_grad():
            gradient = gradient.detach()
            gradient[row] = 0.0
        return gradient

    return hook


class BertEncoder(BertModel):
    """paddlenlp's BertModel without pooler, made equal to transformers' BertModel.

    Corrections: no gradient for the [PAD] row of the word embedding, two token types, layer
    norm epsilon checked on every layer, a missing attention mask means that every position is
    valid (paddlenlp would derive one from the padding id).

    Args:
        config: dimensions.

    Source: B.1; the differences are listed in ``docs/differences.md``.
    """

    def __init__(self, config: EncoderConfig) -> None:
        fields = dataclasses.asdict(config)
        frozen = fields.pop("freeze_encoder")
        # PADDLE: paddlenlp looks the activation up in paddle.nn.functional, which lacks gelu_new
        super().__init__(BertConfig(**{**fields, "hidden_act": "gelu"}))
        self.config.hidden_act = config.hidden_act
        for layer in self.encoder.layers:
            layer.activation = ACTIVATION_FUNCTIONS[config.hidden_act]
        del self.pooler
        self.check_inputs = TextCheck(
            config.vocab_size, config.type_vocab_size, config.max_position_embeddings
        )
        for layer in self.sublayers():
            if isinstance(layer, nn.LayerNorm):
                layer._epsilon = config.layer_norm_eps
        if frozen:
            for parameter in self.parameters():
                parameter.stop_gradient = True
        else:
            word_embedding = self.embeddings.word_embeddings.weight
            word_embedding.register_hook(_zero_row_hook(config.pad_token_id))

    def forward(
        self,
        input_ids: paddle.Tensor,
        token_type_ids: paddle.Tensor | None = None,
        attention_mask: paddle.Tensor | None = None,
        taps: Taps | None = None,
    ) -> Features:
        """Encode token ids.

        Args:
            input_ids: (B, S) int64 or int32, S at most ``max_position_embeddings``.
            token_type_ids: (B, S) int64 or int32, zeros when None.
            attention_mask: (B, S) bool, integer or float, 1 where valid and 0 where not, all valid
                when None.
            taps: collects "embeddings" and "layers.{i}", each (B, S, C).

        Returns:
            Features: class token (B, C), words (B, S - 1, C), mask (B, S - 1).

        Raises:
            ValueError: what `sot_paddle.backbones.inputs.TextCheck` refuses: a sequence longer than
                the position table, inputs of different shapes (they would be broadcast silently),
                ids or types that the tables do not have, a mask of other values than 0 and 1.
        """
        self.check_inputs(input_ids, token_type_ids, attention_mask, training=self.training)
        hidden = self.embeddings(input_ids=input_ids, token_type_ids=token_type_ids)
        record(taps, "embeddings", hidden)
        bias = None
        if attention_mask is not None:
            visible = attention_mask.astype(hidden.dtype).unsqueeze([1, 2])  # (B, 1, 1, S)
            bias = (1.0 - visible) * -1e4  # REF: B.2, as the original text release
        for index, layer in enumerate(self.encoder.layers):
            hidden = record(taps, f"layers.{index}", layer(hidden, bias))
        words_mask = None if attention_mask is None else attention_mask[:, 1:].astype("bool")
        return Features(hidden[:, 0], hidden[:, 1:], words_mask)


class BertClassifier(nn.Layer):
    """A BERT encoder with a classification head.

    Args:
        encoder: dimensions of the encoder.
        head: options of the head.
        num_classes: K; 1 means regression.
        name: the registry name it was built under, kept for checkpoints.

    Raises:
        ValueError: a head that cannot work.
    """

    def __init__(
        self, encoder: EncoderConfig, head: HeadConfig, num_classes: int, *, name: str = ""
    ) -> None:
        super().__init__()
        self.name, self.num_classes = name, num_classes
        self.encoder_config = self.backbone_config = encoder
        self.head_config = head
        self.bert = BertEncoder(encoder)
        self.head = build_head(
            head,
            dim=encoder.hidden_size,
            num_classes=num_classes,
            pooler_dropout=encoder.hidden_dropout_prob,
            initializer_range=encoder.initializer_range,
        )

    def forward(
        self,
        input_ids: paddle.Tensor,
        token_type_ids: paddle.Tensor | None = None,
        attention_mask: paddle.Tensor | None = None,
        return_taps: bool = False,
    ):
        """Classify token sequences.

        Args:
            input_ids: (B, S) integer.
            token_type_ids: (B, S) integer or None (zeros).
            attention_mask: (B, S), 1 where valid, or None (all valid).
            return_taps: also return the named intermediate tensors.

        Returns:
            Logits (B, K); with fusion ``sum_loss`` in training mode the pair (class-token
            logits, word logits). With ``return_taps`` a tuple (that, dict of taps).
        """
        taps: Taps | None = {} if return_taps else None
        features = self.bert(input_ids, token_type_ids, attention_mask, taps)
        logits = self.head(features, taps)
        record(taps, "logits", sum(logits) if isinstance(logits, tuple) else logits)
        return (logits, taps) if return_taps else logits


_LARGE = {
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
}
_PLAIN = {"pooling": "pooler"}
_SECOND_ORDER = {"pooling": "mgcrp_qk"}


def _build(name: str, num_classes: int, options: Mapping[str, Any]) -> BertClassifier:
    """Sort flat options into the two records and build the model."""
    encoder_fields = {field.name for field in dataclasses.fields(EncoderConfig)}
    head_fields = {field.name for field in dataclasses.fields(HeadConfig)}
    unknown = set(options) - encoder_fields - head_fields
    if unknown:
        key = sorted(unknown)[0]
        raise ValueError(
            f"unknown option {key!r} for {name}; {near_names(key, encoder_fields | head_fields)}"
        )
    encoder = {key: value for key, value in options.items() if key in encoder_fields}
    head = {key: value for key, value in options.items() if key in head_fields}
    return BertClassifier(
        build_record(EncoderConfig, encoder, where=name),
        build_record(HeadConfig, head, where=name),
        num_classes,
        name=name,
    )


def bert_base(num_classes: int, **options: Any) -> BertClassifier:
    """BERT-base with its own classifier (transformers' BertForSequenceClassification)."""
    return _build("bert_base", num_classes, {**_PLAIN, **options})


def bert_large(num_classes: int, **options: Any) -> BertClassifier:
    """BERT-large with its own classifier."""
    return _build("bert_large", num_classes, {**_LARGE, **_PLAIN, **options})


def bert_base_mgcrp(num_classes: int, **options: Any) -> BertClassifier:
    """BERT-base with the second-order head of the text release (B.1)."""
    return _build("bert_base_mgcrp", num_classes, {**_SECOND_ORDER, **options})


def bert_large_mgcrp(num_classes: int, **options: Any) -> BertClassifier:
    """BERT-large with the second-order head of the text release (B.1)."""
    return _build("bert_large_mgcrp", num_classes, {**_LARGE, **_SECOND_ORDER, **options})
