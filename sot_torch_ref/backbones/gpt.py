"""OpenAI's GPT-1 of transformers with a composed head; see ``text``."""

import torch
from torch import nn

from sot_torch_ref.backbones.text import EncoderConfig, TextClassifier, build_text
from sot_torch_ref.features import Features

SIZES = {
    "vocab_size": 40478,
    "type_vocab_size": 1,
    "hidden_act": "gelu_new",
    "layer_norm_eps": 1e-5,
}
"""Keys in which GPT differs from BERT base."""
ACTIVATIONS = {"gelu_new": "gelu", "relu": "relu", "silu": "silu"}
"""``hidden_act`` -> transformers' ``afn``."""


class GptClassifier(TextClassifier):
    """GPT encoder and head.

    Attributes:
        gpt: transformers' OpenAIGPTModel.

    Source: specs, decision 8: the class token is the last non-padding token, word tokens are the
    others.
    """

    prefix = "gpt"

    @staticmethod
    def build_encoder(config: EncoderConfig) -> nn.Module:
        """transformers' OpenAIGPTModel of these sizes.

        Raises:
            ValueError: Sizes that it cannot have.
        """
        from transformers import OpenAIGPTConfig, OpenAIGPTModel  # here: it takes seconds to import

        if config.hidden_act not in ACTIVATIONS:
            raise ValueError(
                f"hidden_act must be one of {sorted(ACTIVATIONS)}, got {config.hidden_act!r}"
            )
        if config.intermediate_size != 4 * config.hidden_size or config.type_vocab_size != 1:
            raise ValueError(
                "GPT has intermediate_size 4 * hidden_size and type_vocab_size 1, got "
                f"{config.intermediate_size} and {config.type_vocab_size}"
            )
        return OpenAIGPTModel(
            OpenAIGPTConfig(
                vocab_size=config.vocab_size,
                n_positions=config.max_position_embeddings,
                n_embd=config.hidden_size,
                n_layer=config.num_hidden_layers,
                n_head=config.num_attention_heads,
                afn=ACTIVATIONS[config.hidden_act],
                resid_pdrop=config.hidden_dropout_prob,
                embd_pdrop=config.hidden_dropout_prob,
                attn_pdrop=config.attention_probs_dropout_prob,
                layer_norm_epsilon=config.layer_norm_eps,
                initializer_range=config.initializer_range,
            )
        )

    def call_encoder(
        self, input_ids: torch.Tensor, token_type_ids: torch.Tensor | None, valid: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """Hidden states of transformers' model, which has no token types."""
        return self.gpt(
            input_ids=input_ids, attention_mask=valid, output_hidden_states=True, return_dict=True
        ).hidden_states

    def split(self, last: torch.Tensor, attention_mask: torch.Tensor | None) -> Features:
        """Last hidden states (B, S, C): the last valid token, and the others in order."""
        rows, length = last.shape[:2]
        valid = torch.ones(rows, length) if attention_mask is None else attention_mask
        found = [row.nonzero().flatten().tolist() or [0] for row in valid.bool()]
        ends = [row[-1] for row in found]
        others = [[place for place in range(length) if place != end] for end in ends]
        words = torch.stack([state[kept] for state, kept in zip(last, others, strict=True)])
        cls = torch.stack([state[end] for state, end in zip(last, ends, strict=True)])
        if attention_mask is None:
            return Features(cls=cls, words=words)
        mask = [row.bool()[kept] for row, kept in zip(attention_mask, others, strict=True)]
        return Features(cls=cls, words=words, mask=torch.stack(mask))


def build_gpt(name: str, num_classes: int = 2, **overrides: object) -> nn.Module:
    """GPT by name; see ``registry.create_model``.

    Args:
        name: Ends in ``_mgcrp`` for the second-order head of the text release; the bias-free score
            of the last token otherwise.
        num_classes: Number K of scores.
        **overrides: Encoder and head keys.
    """
    pooling = "mgcrp_qk" if name.endswith("_mgcrp") else "score"
    return build_text(GptClassifier, num_classes, {"pooling": pooling, **SIZES}, overrides)
