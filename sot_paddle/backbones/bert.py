"""BERT: paddlenlp's encoder, corrected to the reference.

Shape legend: B samples, S tokens, C hidden size.
"""

from __future__ import annotations

import dataclasses

import paddle
from paddle import nn
from paddlenlp.transformers import BertConfig, BertModel

from sot_paddle.backbones.inputs import TextCheck
from sot_paddle.backbones.text import ACTIVATION_FUNCTIONS, TextBackbone, zero_row_hook
from sot_paddle.config import EncoderConfig
from sot_paddle.features import Features, Taps, record


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
            word_embedding.register_hook(zero_row_hook(config.pad_token_id))

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


BERT = TextBackbone(
    architecture="bert",
    model_type="bert",
    prefix="bert",
    encoder=BertEncoder,
    presets={
        "bert_base": {},
        "bert_large": {
            "hidden_size": 1024,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "intermediate_size": 4096,
        },
    },
    plain="pooler",
    norms=r"bert\..*\b(layer_norm|norm1|norm2)\.weight",
    layers=(r"bert\.embeddings\.", r"bert\.encoder\.layers\.(\d+)\."),
    tokenizer="wordpiece",
)
