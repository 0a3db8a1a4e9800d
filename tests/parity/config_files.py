"""The config.json of a trained text model: what we write, and what we read of transformers'.

The reference is the configuration of transformers' encoder, built from the same options, which
all differ from the defaults.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import sot_torch_ref
from sot_paddle import registry
from sot_paddle.backbones.pretraining import PretrainingModel
from sot_paddle.config import EncoderConfig
from sot_paddle.heads.pretraining import PretrainingHeadConfig

from .built_records import Named

_OPTIONS = {
    "vocab_size": 23,
    "hidden_size": 12,
    "num_hidden_layers": 1,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "max_position_embeddings": 17,
    "type_vocab_size": 3,
    "hidden_act": "gelu_new",
    "layer_norm_eps": 2e-6,
    "hidden_dropout_prob": 0.21,
    "attention_probs_dropout_prob": 0.34,
    "initializer_range": 0.03,
    "pad_token_id": 4,
}
_OF_GPT = {"type_vocab_size": 1, "intermediate_size": 48, "pad_token_id": 0}
MODELS: Mapping[str, dict[str, Any]] = {
    "bert_base": _OPTIONS,
    "roberta_base": _OPTIONS,
    "openai_gpt": {**_OPTIONS, **_OF_GPT},
}
_KEYS = {
    *_OPTIONS,
    *("n_embd", "n_layer", "n_head", "n_positions", "afn", "layer_norm_epsilon"),
    *("resid_pdrop", "embd_pdrop", "attn_pdrop"),
}
"""Under which transformers' configurations state them, in the words of GPT as well."""


@functools.cache
def _stated(model: str) -> Mapping[str, Any]:
    """What transformers' encoder of those options says of itself."""
    built = sot_torch_ref.create_model(model, **MODELS[model])
    config = getattr(built, built.prefix).config.to_dict()
    return {key: config[key] for key in _KEYS if config.get(key) is not None}


def _options_kept(model: str, given: Mapping[str, Any]) -> EncoderConfig:
    """The options that a model for pre-training keeps; those given where there is none."""
    backbone = registry.text_backbone(model)
    options = backbone.options(**given)
    if not backbone.first_token:
        return options
    return PretrainingModel(backbone, options, PretrainingHeadConfig()).encoder_config


def ours() -> Named:
    """What is written for a model, and what is read of transformers'."""
    found: Named = {}
    for model, given in MODELS.items():
        backbone = registry.text_backbone(model)
        found[f"{model}: written"] = backbone.write_config(_options_kept(model, given))
        # of two keys of an option the first is read
        stated = {key: value for key, value in _stated(model).items() if key != "embd_pdrop"}
        found[f"{model}: read"] = backbone.read_config(stated)
    return found


def reference() -> Named:
    """What transformers states, and the options that it was given."""
    return {
        f"{model}: {way}": dict(facts)
        for model, given in MODELS.items()
        for way, facts in (("written", _stated(model)), ("read", given))
    }
