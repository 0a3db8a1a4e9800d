"""The config.json beside the weights: sizes from the tensors, the rest from where it is known."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sot_paddle.config import ACTIVATIONS
from sot_paddle.convert.engine.conversion_plan import ConversionPlan
from sot_paddle.convert.engine.layout import Layout

_BERTS = {
    **dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.1),
    "initializer_range": 0.02,
    "position_embedding_type": "absolute",
}


@dataclass(frozen=True)
class TextFamily:
    """What the config.json of a family of language models looks like.

    Args:
        model_type: its name there.
        model: class of transformers without a head.
        classifier: class of transformers with one.
        scores: the tensor that only a classifier has.
        heads: key of the number of attention heads.
        untold: keys of options that change every score and that no tensor tells: never filled in.
        activations: values of the first of them that the models have.
        defaults: what is written where the source does not say.
    """

    model_type: str
    model: str
    classifier: str
    scores: str
    heads: str = "num_attention_heads"
    untold: tuple[str, ...] = ("hidden_act", "layer_norm_eps")
    activations: tuple[str, ...] = ACTIVATIONS
    defaults: Mapping[str, Any] = field(default_factory=lambda: dict(_BERTS))


_CONV_BERT = TextFamily(
    *("conv_bert", "ConvBertEncoder", "ConvBertClassifier", "head.cls_fc.weight"),
    untold=("hidden_act", "layer_norm_eps", "attention_kernel", "qk", "value_forward"),
    defaults={key: value for key, value in _BERTS.items() if key != "position_embedding_type"},
)

FAMILIES: Mapping[str, TextFamily] = {
    "bert": TextFamily("bert", "BertModel", "BertForSequenceClassification", "classifier.weight"),
    "roberta": TextFamily(
        *("roberta", "RobertaModel", "RobertaForSequenceClassification"),
        "classifier.out_proj.weight",
    ),
    "gpt": TextFamily(
        *("openai-gpt", "OpenAIGPTModel", "OpenAIGPTForSequenceClassification", "score.weight"),
        heads="n_head",
        untold=("afn", "layer_norm_epsilon"),
        activations=("gelu", "relu", "silu", "swish"),
        defaults={
            **dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.1),
            "initializer_range": 0.02,
        },
    ),
    "conv_bert": _CONV_BERT,
    "conv_bert_original": dataclasses.replace(
        _CONV_BERT,
        model_type="bert",
        model="BertModel",
        classifier="BertForSequenceClassification",
        scores="classifier.weight",
    ),
}
"""Family, or ``written_as``, of `sot_paddle.convert.engine.layout.Layout` -> its config.json."""


def check_config(config: Mapping[str, Any], layout: Layout) -> None:
    """Refuse a config.json that speaks of another architecture.

    Args:
        config: of the source, on the PyTorch side.
        layout: its tables.

    Raises:
        ValueError: another model_type, or an activation or kind of positions that the models do
            not have.
    """
    family = FAMILIES[layout.written_as or layout.family]
    expected = {
        "model_type": (family.model_type,),
        family.untold[0]: family.activations,
        "position_embedding_type": ("absolute",),
    }
    for key, allowed in expected.items():
        if key in config and config[key] not in allowed:
            names = " or ".join(repr(name) for name in allowed)
            raise ValueError(f"config.json: expected {key} {names}, got {config[key]!r}")


def attention_heads(
    asked: int | None,
    metadata: Mapping[str, str],
    config: Mapping[str, Any],
    hidden: int,
    family: str = "bert",
) -> int | None:
    """Number of attention heads, which no tensor's shape tells.

    Args:
        asked: what the user said.
        metadata: the source's table.
        config: the source's config.
        hidden: hidden size.
        family: of the layout.

    Returns:
        The number from the first of the three that has it, or None.

    Raises:
        ValueError: not a number that divides the hidden size, or another one than the source's.
    """
    candidates = (asked, metadata.get("num_attention_heads"), config.get(FAMILIES[family].heads))
    for of_source in candidates[1:] if asked is not None else ():
        if of_source is not None and str(of_source) != str(asked):
            raise ValueError(
                f"--num-attention-heads {asked}: the source itself says {of_source}; leave the "
                "option out, or correct the source's config.json"
            )
    stated = next((value for value in candidates if value is not None), None)
    if stated is None:
        return None
    if not str(stated).isdecimal() or int(stated) == 0 or hidden % int(stated):
        raise ValueError(f"{stated!r} attention heads do not divide the hidden size {hidden}")
    return int(stated)


def complete_config(
    plan: ConversionPlan, layout: Layout, stated: Mapping[str, Any], heads: int | None
) -> dict[str, Any]:
    """A Hugging Face config whose sizes are those of the tensors.

    Args:
        plan: the conversion.
        layout: its tables.
        stated: config of the source, {} if it had none.
        heads: attention heads, None when unknown (then left out).

    Returns:
        The content of config.json.
    """
    family = FAMILIES[(plan.reverse and layout.written_as) or layout.family]
    config = {**family.defaults, **stated, "model_type": family.model_type}
    sizes = {**layout.config, **layout.head_config.get(plan.head, {})}
    config.update({key: plan.sizes[s] for key, s in sizes.items() if s in plan.sizes})
    config[layout.depth_key] = plan.depth
    config.pop(family.heads, None)
    if heads:
        config[family.heads] = heads
    return config


def loadable_config(
    config: Mapping[str, Any], plan: ConversionPlan, layout: Layout, dtype: str
) -> dict[str, Any]:
    """Add what transformers' from_pretrained wants to know about a reversed directory.

    Args:
        config: from :func:`complete_config`.
        plan: the reverse conversion.
        layout: its tables.
        dtype: dtype of the embeddings.

    Returns:
        The content of config.json, with the class to build, labels and dtype.
    """
    config = {**config, "torch_dtype": dtype}
    classes = plan.sizes.get("K")
    if classes is not None:
        labels = config.get("id2label")
        if not isinstance(labels, dict) or len(labels) != classes:
            config["id2label"] = {str(k): f"LABEL_{k}" for k in range(classes)}
            config["label2id"] = {f"LABEL_{k}": k for k in range(classes)}
        config["num_labels"] = classes
    written = {entry.destination for entry in plan.entries}
    family = FAMILIES[layout.written_as or layout.family]
    kind = family.classifier if family.scores in written else family.model
    return {**config, "architectures": [kind]}


def as_json(content: Mapping[str, Any]) -> bytes:
    """Encode a config or manifest for a file."""
    return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode("utf-8")
