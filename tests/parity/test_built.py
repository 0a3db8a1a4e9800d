"""Models before any weight is loaded: ours as built against the reference's.

Names, shapes and dtypes, what is trained and decayed, initial distributions as each side declares
them, constants of every module, tables and masks by value, and the counts that are published.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
import pytest
from scipy import stats

import sot_paddle
from sot_paddle.config import POOLINGS, WORD_POOLINGS

from . import built_paddle, built_torch
from .built_records import StatedDifference, assert_facts
from .sides import paddle_precision

_PADDING_ROW = (
    "transformers 4.55 starts the padding row of an embedding at zero; paddlenlp draws it "
    "like the others, as the text release's transformers 2.2.1 did; a checkpoint replaces it"
)


_PADDED = {
    "bert": ("bert", ("word",)),
    "spanbert": ("bert", ("word",)),
    "roberta": ("roberta", ("word", "position")),
    "openai": ("gpt", ()),
    "conv": ("conv_bert", ()),
}
"""First word of a name -> the encoder's attribute, and its embeddings with a padding row."""


@dataclass(frozen=True)
class BuiltModel:
    """A model as built.

    Attributes:
        name: of the row.
        model: in the registry of both sides.
        options: overrides on both sides; empty for the published sizes.
        differences: deliberate ones.
        precision: default dtype while it is built.
        quick: False leaves it to ``make test-long``.
    """

    name: str
    model: str
    options: Mapping[str, Any]
    differences: tuple[StatedDifference, ...] = ()
    precision: str = "float32"
    quick: bool = True


def _text(
    model: str,
    name: str = "",
    *,
    width: int = 768,
    precision: str = "float32",
    quick: bool = True,
    **options: Any,
) -> BuiltModel:
    width = options.get("hidden_size", width)
    drawn = ("normal", 0.0, options.get("initializer_range", 0.02))
    prefix, padded = _PADDED[model.partition("_")[0]]
    rows = tuple(
        StatedDifference(
            f"{prefix}.embeddings.{table}_embeddings.weight",
            "start",
            drawn,
            (*drawn, ("constant", 0.0, width)),
            _PADDING_ROW,
        )
        for table in padded
    )
    return BuiltModel(name or model, model, options, rows, precision, quick)


def _vision(
    model: str, name: str = "", *, precision: str = "float32", **options: Any
) -> BuiltModel:
    return BuiltModel(name or model, model, options, precision=precision)


_COUNTS = {
    "bert_base_mgcrp": {"head": 72_940},  # B.1 with q 56, k 32, K 2
    "sot_tiny": {
        "all values": 8_030_830,
        "trainable": 7_983_550,
        "head": 1_458_334,
        "decayed": 93,
        "undecayed": 97,
    },
    "sot_small": {"all values": 27_086_504, "trainable": 27_010_856, "head": 3_952_616},
    "sot_base": {"all values": 76_878_982, "trainable": 76_774_966, "head": 9_434_806},
    "deit_tiny": {"trainable": 5_717_416},
    "deit_base": {"trainable": 86_567_656},
    "deit_tiny_sot": {"trainable": 7_052_062},
    "deit_small_sot": {"trainable": 25_620_776},
    "swin_tiny": {"trainable": 28_288_354},
    "swin_tiny_sot": {"trainable": 31_453_306},
    "swin_base": {"trainable": 87_768_224},
}
"""Counts of the specification: A.8, A.9, B.1."""

_WHOLE_TEXTS = ("bert_base", "bert_base_mgcrp", "bert_large", "bert_large_mgcrp", "roberta_base")
_LONG_TEXTS = (
    *("spanbert_base", "spanbert_base_mgcrp", "spanbert_large", "spanbert_large_mgcrp"),
    *("roberta_base_mgcrp", "roberta_large", "roberta_large_mgcrp"),
    *("openai_gpt", "openai_gpt_mgcrp", "conv_bert_base", "conv_bert_base_mgcrp"),
)
_MODELS = (
    *(_text(name, width=1024 if "large" in name else 768) for name in _WHOLE_TEXTS),
    *(_text(name, width=1024 if "large" in name else 768, quick=False) for name in _LONG_TEXTS),
    *(
        _vision(name)
        for name in (
            *("sot_tiny", "sot_small", "sot_base"),
            *("deit_tiny", "deit_small", "deit_base"),
            *("deit_tiny_sot", "deit_small_sot", "deit_base_sot"),
            *("swin_tiny", "swin_base", "swin_tiny_sot", "swin_base_sot"),
        )
    ),
)

_EMBEDDINGS = tuple(
    _vision("sot_tiny", f"tokens_{name}", depth=1, **options)
    for name, options in (
        ("resnet", {"token_type": "resnet"}),
        ("inception", {"token_type": "inception"}),
        ("inception_large", {"token_type": "inception", "large_output": True, "img_size": 16}),
        ("nonlocal", {"token_type": "nonlocal", "img_size": 112}),
        ("linear", {"token_type": "linear"}),
        ("patch", {"token_type": "patch", "position": "learned", "patch_size": 8, "in_chans": 4}),
        ("densenet_bn", {"dense_norm": "bn"}),
        ("densenet_large", {"large_output": True, "img_size": 32}),
        ("densenet_112", {"img_size": 112}),
    )
)

_RATES = {"drop_path_rate": 0.1, "drop_rate": 0.05, "attn_drop_rate": 0.07, "head_dropout": 0.3}
_STAGES = {"depths": (2, 2, 2, 2)}
_ONE_STAGE = {"depths": (1,), "num_heads": (3,), "num_classes": 7}
_VARIANTS = (
    _vision("sot_tiny", "sot_rates", depth=4, **_RATES),
    _vision("deit_tiny", "deit_rates", depth=2, **_RATES),
    _vision("swin_tiny_sot", "swin_rates", dense_norm="bn", **_STAGES, **_RATES),
    _vision("sot_tiny", "sot_scale", depth=1, qk_scale=0.3, qkv_bias=True, layer_norm_eps=1e-4),
    _vision(
        "swin_tiny",
        "swin_window_8",
        **_STAGES,
        img_size=256,
        window_size=8,
        layer_norm_eps=1e-4,
    ),
    _vision(
        "swin_tiny",
        "swin_resnet",
        **{**_ONE_STAGE, "token_type": "resnet", "token_dim": 24, "patch_size": 16, "in_chans": 4},
    ),
    _vision(
        "swin_tiny",
        "swin_padded",
        **_STAGES,
        img_size=160,
        window_size=6,
        patch_norm=False,
        layer_norm_eps=1e-4,
    ),
)

_LITTLE = {
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 72,
    "vocab_size": 2000,
    "max_position_embeddings": 100,
}
_TEXT_RATES = {
    "hidden_dropout_prob": 0.15,
    "attention_probs_dropout_prob": 0.25,
    "layer_norm_eps": 1e-6,
}
_CONVOLVED = {
    **_LITTLE,
    "num_attention_heads": 4,
    "pad_token_id": 7,
    "embedding_size": 20,
    "hidden_act": "relu",
    "initializer_range": 0.03,
    **_TEXT_RATES,
}
_NARROW = {
    "hidden_size": 4,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "initializer_range": 0.03,
    "q_dim": 3,
    "k_dim": 2,
}
_PRESETS = tuple(
    _text(model, f"{model}_narrow", **_NARROW)
    for model in ("spanbert_base", "openai_gpt", "conv_bert_base")
)
"""Of presets that are built whole in the long suite only: sizes that a narrow model has too."""

_JOINED = ("sum_fc", "concat", "aggre_all")
_HEADS = (
    _text("bert_base", "head_pooler", **_LITTLE, initializer_range=0.03, hidden_act="relu"),
    *(
        _text("bert_base", f"head_{pooling}", **_LITTLE, initializer_range=0.03, pooling=pooling)
        for pooling in ("two_layer", "score", "spans", "layers")
    ),
    _text("bert_base", "head_fc", **_LITTLE, pooling="fc"),
    _text("bert_base", "head_none", **_LITTLE, pooling="none"),
    _text("roberta_base", "roberta_epsilon", **_LITTLE, layer_norm_eps=1e-4),
    *(
        _text("conv_bert_base", f"conv_bert_{name}", **_CONVOLVED, **kernels)
        for name, kernels in (
            (
                "terms",
                {
                    "attention_kernel": "convfixed_convq_convolution_scaled 3",
                    "value_forward": "convolution_depth_mixed 2 1",
                    "attention_head_size": 12,
                },
            ),
            ("spans", {"attention_kernel": "convbert", "value_forward": "convolution 1 3"}),
        )
    ),
    *(
        _text("bert_base_mgcrp", f"head_{pooling}", **_LITTLE, pooling=pooling, fusion=fusion)
        for pooling, fusion in zip(WORD_POOLINGS, itertools.cycle(_JOINED), strict=False)
    ),
    _text("bert_base_mgcrp", "head_word_tokens", **_LITTLE, fusion="word_tokens"),
    _text("bert_base_mgcrp", "head_class_token", **_LITTLE, fusion="class_token"),
    _text("bert_base_mgcrp", "head_sum_loss", **_LITTLE, fusion="sum_loss", start="one"),
    _text("bert_base_mgcrp", "head_masked", **_LITTLE, mask_padding=True, freeze_encoder=True),
    _text("bert_base_mgcrp", "text_rates", **_LITTLE, **_TEXT_RATES),
    *(
        _text(
            "bert_base_mgcrp", f"head_mgcrp_{norm}", **_LITTLE, pooling="mgcrp", normalization=norm
        )
        for norm in ("svpn", "sqrt_d", "sqrt_t", "epn", "ln", "none")
    ),
)

_WIDE = {"precision": "float64"}
_FLOAT64 = (
    _vision("sot_tiny", "one_block_float64", depth=1, **_WIDE),
    _vision("swin_tiny", "windows_float64", **_STAGES, **_WIDE),
    _text("bert_base_mgcrp", "text_float64", **_LITTLE, **_WIDE),
)


MODELS = (*_MODELS, *_PRESETS, *_EMBEDDINGS, *_VARIANTS, *_HEADS, *_FLOAT64)


def test_every_pooling_is_built() -> None:
    """The pooling `pooler` is that of text models' names."""
    built = {row.options.get("pooling") for row in MODELS} | {"pooler"}
    assert set(POOLINGS) <= built, "no row of _HEADS has these"


@pytest.mark.parametrize(
    "row",
    [pytest.param(row, id=row.name, marks=() if row.quick else pytest.mark.long) for row in MODELS],
)
def test_a_model_as_built(row: BuiltModel) -> None:
    ours = built_paddle.describe(row.model, row.options, row.precision)
    reference = built_torch.describe(row.model, row.options, row.precision)
    assert_facts(ours.options, reference.options)
    assert_facts(ours.modules, reference.modules)
    assert_facts(ours.tensors, reference.tensors, row.differences)
    assert sorted(ours.values) == sorted(reference.values)
    for name, expected in reference.values.items():
        assert ours.values[name].dtype == expected.dtype, name
        np.testing.assert_array_equal(ours.values[name], expected, err_msg=name)
    counts = ours.counts()
    published = _COUNTS.get(row.name, {})
    assert {kind: counts[kind] for kind in published} == published


def test_every_model_of_the_registry_has_a_row() -> None:
    assert {row.name for row in MODELS} >= set(sot_paddle.list_models())


FALSE_ALARMS = 1e-9  # of one tensor
MOST = 1 << 14  # values of a tensor that are judged, evenly spread: the bound is then .026
DRAWS = {
    "text": ("bert_base_mgcrp", _LITTLE),
    "tokens": ("sot_tiny", {"depth": 1}),
    "windows": ("swin_tiny", {"depths": (1, 1, 1), "num_heads": (3, 6, 12)}),
}


@pytest.mark.parametrize("kind", DRAWS)
def test_drawn_weights_follow_the_declared_distributions(kind: str) -> None:
    """Constants are equal; drawn values keep the bound of Dvoretzky, Kiefer and Wolfowitz.

    P(sup |F_n - F| > e) <= 2 exp(-2 n e^2) whatever the family; e is the one for FALSE_ALARMS.
    """
    name, options = DRAWS[kind]
    with paddle_precision("float32"):
        paddle.seed(7)
        model = sot_paddle.create_model(name, **options)
    facts = built_torch.describe(name, options).tensors
    starts = {tensor: one["start"] for tensor, one in facts.items() if one["parameter"]}
    parameters = dict(model.named_parameters())
    assert sorted(parameters) == sorted(starts)
    for tensor, (family, *numbers) in starts.items():
        values = parameters[tensor].numpy().reshape(-1).astype("float64")
        values = values[:: -(-values.size // MOST)]
        if family == "constant":
            np.testing.assert_array_equal(values, np.float32(numbers[0]), err_msg=tensor)
            continue
        low, high = numbers[:2]  # of a normal distribution mean and deviation
        law = stats.norm(low, high) if family == "normal" else stats.uniform(low, high - low)
        distance = stats.ks_1samp(values, law.cdf, method="asymp").statistic
        assert distance <= math.sqrt(math.log(2 / FALSE_ALARMS) / (2 * values.size)), tensor
