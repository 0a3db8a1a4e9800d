"""Models by name."""

import difflib
from collections.abc import Callable

from torch import nn

from sot_torch_ref.backbones import bert

MODELS: dict[str, Callable[..., nn.Module]] = {
    "bert_base": bert.bert_base,
    "bert_large": bert.bert_large,
    "bert_base_mgcrp": bert.bert_base_mgcrp,
    "bert_large_mgcrp": bert.bert_large_mgcrp,
}


def list_models() -> list[str]:
    """Names that ``create_model`` knows, sorted."""
    return sorted(MODELS)


def create_model(name: str, num_classes: int = 2, **overrides: object) -> nn.Module:
    """Build a model with fresh weights, in torch's default dtype.

    Args:
        name: One of ``list_models()``.
        num_classes: Number K of scores, >= 1 (1 = regression).
        **overrides: Encoder keys (``backbones.bert.EncoderConfig``) and head keys
            (``heads.factory.HeadConfig``).

    Returns:
        The model, in train mode. Call it as
        ``model(input_ids, token_type_ids=None, attention_mask=None, return_taps=False)``.

    Raises:
        ValueError: Unknown name or override (the message lists the near ones), or a value that
            does not fit.
    """
    if name not in MODELS:
        near = difflib.get_close_matches(name, MODELS, n=3) or list_models()
        raise ValueError(f"unknown model {name!r}; did you mean: {', '.join(near)}?")
    return MODELS[name](num_classes, **overrides)
