"""RoBERTa of transformers with a composed head; see ``text``."""

from dataclasses import asdict

from torch import nn

from sot_torch_ref.backbones.text import LARGE, EncoderConfig, TextClassifier, build_text

SIZES = {
    "vocab_size": 50265,
    "max_position_embeddings": 514,
    "type_vocab_size": 1,
    "layer_norm_eps": 1e-5,
    "pad_token_id": 1,
}
"""Keys in which RoBERTa base differs from BERT base."""


class RobertaClassifier(TextClassifier):
    """RoBERTa encoder and head.

    Attributes:
        roberta: transformers' RobertaModel, without pooler.
    """

    prefix = "roberta"

    @staticmethod
    def build_encoder(config: EncoderConfig) -> nn.Module:
        """transformers' RobertaModel of these sizes."""
        from transformers import RobertaConfig, RobertaModel  # here: it takes seconds to import

        keys = asdict(config)
        del keys["freeze_encoder"]
        roberta_config = RobertaConfig(**keys, attn_implementation="eager")
        return RobertaModel(roberta_config, add_pooling_layer=False)

    @property
    def position_limit(self) -> int:
        """Tokens of a row at most: the first one's position is ``pad_token_id + 1``."""
        config = self.encoder_config
        return config.max_position_embeddings - config.pad_token_id - 1


def build_roberta(name: str, num_classes: int = 2, **overrides: object) -> nn.Module:
    """RoBERTa by name; see ``registry.create_model``.

    Args:
        name: Ends in ``_mgcrp`` for the second-order head of the text release; the model's own
            two-layer head otherwise.
        num_classes: Number K of scores.
        **overrides: Encoder and head keys.
    """
    pooling = "mgcrp_qk" if name.endswith("_mgcrp") else "two_layer"
    sizes = {**SIZES, **LARGE} if "_large" in name else SIZES
    return build_text(RobertaClassifier, num_classes, {"pooling": pooling, **sizes}, overrides)
