"""BERT of transformers with a composed head; see ``text``."""

from dataclasses import asdict

from torch import nn

from sot_torch_ref.backbones.text import LARGE, EncoderConfig, TextClassifier, build_text


class BertClassifier(TextClassifier):
    """BERT encoder and head.

    Attributes:
        bert: transformers' BertModel, without pooler.
    """

    prefix = "bert"

    @staticmethod
    def build_encoder(config: EncoderConfig) -> nn.Module:
        """transformers' BertModel of these sizes."""
        from transformers import BertConfig, BertModel  # here: it takes seconds to import

        keys = asdict(config)
        del keys["freeze_encoder"]
        bert_config = BertConfig(**keys, attn_implementation="eager")
        return BertModel(bert_config, add_pooling_layer=False)


def build_bert(name: str, num_classes: int = 2, **overrides: object) -> nn.Module:
    """BERT or SpanBERT by name; see ``registry.create_model``.

    Args:
        name: Ends in ``_mgcrp`` for the second-order head of the text release; the model's own
            pooler head otherwise.
        num_classes: Number K of scores.
        **overrides: Encoder and head keys.
    """
    pooling = "mgcrp_qk" if name.endswith("_mgcrp") else "pooler"
    cased = {"vocab_size": 28996} if name.startswith("spanbert_") else {}
    sizes = {**cased, **(LARGE if "_large" in name else {})}
    return build_text(BertClassifier, num_classes, {"pooling": pooling, **sizes}, overrides)
