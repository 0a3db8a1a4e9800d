"""Models by name."""

import difflib
import functools
from collections.abc import Callable

from torch import nn

from sot_torch_ref.backbones import bert, conv_bert, gpt, roberta, swin, vit

MODELS: dict[str, Callable[..., nn.Module]] = {
    **{
        f"{name}{head}": functools.partial(build, f"{name}{head}")
        for name, build in (
            ("bert_base", bert.build_bert),
            ("bert_large", bert.build_bert),
            ("spanbert_base", bert.build_bert),
            ("spanbert_large", bert.build_bert),
            ("roberta_base", roberta.build_roberta),
            ("roberta_large", roberta.build_roberta),
            ("openai_gpt", gpt.build_gpt),
            ("conv_bert_base", conv_bert.build_conv_bert),
        )
        for head in ("", "_mgcrp")
    },
    "sot_tiny": functools.partial(vit.build_vit, "sot_tiny"),
    "sot_small": functools.partial(vit.build_vit, "sot_small"),
    "sot_base": functools.partial(vit.build_vit, "sot_base"),
    "deit_tiny": functools.partial(vit.build_vit, "deit_tiny"),
    "deit_small": functools.partial(vit.build_vit, "deit_small"),
    "deit_base": functools.partial(vit.build_vit, "deit_base"),
    "deit_tiny_sot": functools.partial(vit.build_vit, "deit_tiny_sot"),
    "deit_small_sot": functools.partial(vit.build_vit, "deit_small_sot"),
    "deit_base_sot": functools.partial(vit.build_vit, "deit_base_sot"),
    "swin_tiny": functools.partial(swin.build_swin, "swin_tiny"),
    "swin_base": functools.partial(swin.build_swin, "swin_base"),
    "swin_tiny_sot": functools.partial(swin.build_swin, "swin_tiny_sot"),
    "swin_base_sot": functools.partial(swin.build_swin, "swin_base_sot"),
}


def list_models() -> list[str]:
    """Names that ``create_model`` knows, sorted."""
    return sorted(MODELS)


def create_model(name: str, num_classes: int | None = None, **overrides: object) -> nn.Module:
    """Build a model with fresh weights, in torch's default dtype.

    Args:
        name: One of ``list_models()``.
        num_classes: Number K of scores, >= 1 (1 = regression); None = the model's own default,
            2 for text and 1000 for images.
        **overrides: Backbone keys (``backbones.text.EncoderConfig``, ``vision_config.ViTConfig``
            or ``vision_config.SwinConfig``) and head keys (``heads.factory.HeadConfig``).

    Returns:
        The model, in train mode. Call a text model as
        ``model(input_ids, token_type_ids=None, attention_mask=None, return_taps=False)`` and a
        vision model as ``model(images, return_taps=False)``.

    Raises:
        ValueError: Unknown name or override (the message lists the near ones), or a value that
            does not fit.
    """
    if name not in MODELS:
        near = difflib.get_close_matches(name, MODELS, n=3) or list_models()
        raise ValueError(f"unknown model {name!r}; did you mean: {', '.join(near)}?")
    if num_classes is None:
        return MODELS[name](**overrides)
    return MODELS[name](num_classes, **overrides)
