"""Names of other libraries' models, PyTorch -> Paddle: tables as `name_table` reads them.

Data only. A table is used when it fits every name of both sides; ``*`` stands for what a task model
or the user's own model puts in front. Sources: the state dicts of transformers 4.55, torchvision
0.28, timm 1.0, paddlenlp 3.0 and paddle.vision 3.3. resnet, resnext, wide_resnet, torchvision's vgg
and mobilenet_v2 need no table: only leaf names of the frameworks' own layers differ there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sot_paddle.convert.tables.hf_encoder import renamed_layers

_UNUSED_POOLER = "paddlenlp builds a pooler that this model's output does not depend on"
_DISTILBERT_LAYER = {
    "attention.q_lin": "self_attn.q_proj",
    "attention.k_lin": "self_attn.k_proj",
    "attention.v_lin": "self_attn.v_proj",
    "attention.out_lin": "self_attn.out_proj",
    "sa_layer_norm": "norm1",
    "ffn.lin1": "linear1",
    "ffn.lin2": "linear2",
    "output_layer_norm": "norm2",
}
_CLIP_LAYER = {
    "self_attn.q_proj": "self_attn.q_proj",
    "self_attn.k_proj": "self_attn.k_proj",
    "self_attn.v_proj": "self_attn.v_proj",
    "self_attn.out_proj": "self_attn.out_proj",
    "layer_norm1": "norm1",
    "mlp.fc1": "linear1",
    "mlp.fc2": "linear2",
    "layer_norm2": "norm2",
}
_GPT2 = {
    "wte": "embeddings.word_embeddings",
    "wpe": "embeddings.position_embeddings",
    **{
        f"h.{{}}.attn.c_attn.{leaf}": [
            f"decoder.layers.{{}}.self_attn.{part}_proj.{leaf}" for part in "qkv"
        ]
        for leaf in ("weight", "bias")
    },
    "h.{}.attn.c_proj": "decoder.layers.{}.self_attn.out_proj",
    "h.{}.ln_1": "decoder.layers.{}.norm1",
    "h.{}.ln_2": "decoder.layers.{}.norm2",
    "h.{}.mlp.c_fc": "decoder.layers.{}.linear1",
    "h.{}.mlp.c_proj": "decoder.layers.{}.linear2",
    "ln_f": "decoder.norm",
}
_DENSE_LAYER = {
    "norm1": "bn_ac_func1._batch_norm",
    "conv1": "bn_ac_func1._conv",
    "norm2": "bn_ac_func2._batch_norm",
    "conv2": "bn_ac_func2._conv",
}
_V3_PART = {"e": "expand_conv", "d": "bottleneck_conv", "s": "mid_se", "l": "linear_conv"}
_V3_BLOCKS = {
    "small": ("dsl", "edl", "edl", *["edsl"] * 8),
    "large": ("dl", "edl", "edl", *["edsl"] * 3, *["edl"] * 4, *["edsl"] * 5),
}
"""What each block of mobilenet_v3 holds, in torchvision's order: expansion, depthwise, squeeze and
excitation, linear."""
_V2_BLOCKS = (
    *("0.0", "1.0", "1.1", "2.0", "2.1", "2.2", "3.0", "3.1", "3.2", "3.3"),
    *("4.0", "4.1", "4.2", "5.0", "5.1", "5.2", "6.0"),
)
_V2_FIRST = {"conv_dw": "0.0", "bn1": "0.1", "conv_pw": "1", "bn2": "2"}
_V2_BLOCK = {
    **{"conv_pw": "0.0", "bn1": "0.1", "conv_dw": "1.0", "bn2": "1.1"},
    **{"conv_pwl": "2", "bn3": "3"},
}


def _below(prefixes: Mapping[str, str], names: Mapping[str, str]) -> dict[str, str]:
    """The rows of some names below each of several modules."""
    rows: dict[str, str] = {}
    for torch_prefix, paddle_prefix in prefixes.items():
        rows |= {f"{torch_prefix}.{a}": f"{paddle_prefix}.{b}" for a, b in names.items()}
    return rows


def _mobilenet_v3_rows(blocks: Sequence[str]) -> dict[str, str]:
    """The rows of all blocks, of which each holds some of `_V3_PART`."""
    rows: dict[str, str] = {}
    for n, parts in enumerate(blocks):
        names = {f"{i}": _V3_PART[part] for i, part in enumerate(parts)}
        rows |= _below({f"features.{n + 1}.block": f"blocks.{n}"}, names)
    return rows


_BART_LAYER = {"fc1": "linear1", "fc2": "linear2", "self_attn_layer_norm": "norm1"}
_BART_CROSS = {"encoder_attn": "cross_attn", "encoder_attn_layer_norm": "norm2"}
_BART = {
    **_below(
        {"encoder.layers.{}": "encoder.encoder.layers.{}"},
        {"self_attn": "self_attn", **_BART_LAYER, "final_layer_norm": "norm2"},
    ),
    **_below(
        {"decoder.layers.{}": "decoder.decoder.layers.{}"},
        {"self_attn": "self_attn", **_BART_LAYER, **_BART_CROSS, "final_layer_norm": "norm3"},
    ),
    "encoder.embed_positions": "encoder.encoder_embed_positions",
    "encoder.layernorm_embedding": "encoder.encoder_layernorm_embedding",
    "decoder.embed_positions": "decoder.decoder_embed_positions",
    "decoder.layernorm_embedding": "decoder.decoder_layernorm_embedding",
    **{f"{side}.layer_norm": f"{side}.{side}.norm" for side in ("encoder", "decoder")},
}
_FIRE = {
    "squeeze": "_conv._conv",
    "expand1x1": "_conv_path1._conv",
    "expand3x3": "_conv_path2._conv",
}
_FIRES = {"1_0": (3, 4, 5, 7, 8, 9, 10, 12), "1_1": (3, 4, 6, 7, 9, 10, 11, 12)}
"""Which of squeezenet's features are fire modules."""
_LM_HEAD = {"to": "lm_head.weight", "transform": "transpose"}

KNOWN: Mapping[str, Mapping[str, Any]] = {
    "PyTorch's TransformerDecoder -> Paddle's": {"map": {"*multihead_attn": "*cross_attn"}},
    "transformers' BERT, RoBERTa, ERNIE, ELECTRA -> paddlenlp's": {
        "map": {
            **renamed_layers("*"),
            "*cls.predictions.transform.dense": "*cls.predictions.transform",
            "*cls.predictions.transform.LayerNorm": "*cls.predictions.layer_norm",
            "*cls.predictions.bias": "*cls.predictions.decoder_bias",
            "*cls.predictions.decoder.bias": "*cls.predictions.decoder_bias",
            "*.decoder.weight": {"to": "*.decoder.weight", "transform": "copy"},
            "*generator_predictions.LayerNorm": "*generator_predictions.layer_norm",
            "*generator_lm_head.bias": "*generator_lm_head_bias",
            "*qa_outputs": "*classifier",
        },
        "modules": {
            "*encoder.layer.{}": "*encoder.layers.{}",
            "*embeddings.position_embeddings": None,
        },
        "ignore_paddle": {"*.pooler.dense.*": _UNUSED_POOLER},
    },
    "transformers' DistilBERT -> paddlenlp's": {
        "map": {
            "*embeddings.LayerNorm": "*embeddings.layer_norm",
            **_below({"*transformer.layer.{}": "*encoder.layers.{}"}, _DISTILBERT_LAYER),
            "*qa_outputs": "*classifier",
        },
        "modules": {
            "*transformer.layer.{}": "*encoder.layers.{}",
            "*transformer": "*encoder",
            "*embeddings.position_embeddings": None,
        },
    },
    "transformers' ALBERT -> paddlenlp's": {
        "map": {"*.LayerNorm": "*.layer_norm", "*qa_outputs": "*classifier"},
        "ignore_paddle": {"*embeddings.position_ids": "the numbers 0, 1, 2, ..."},
    },
    "transformers' GPT-2 -> paddlenlp's GPT": {
        "map": {
            **_GPT2,
            **{
                f"transformer.{torch_name}": [f"gpt.{name}" for name in paddle_name]
                if isinstance(paddle_name, list)
                else f"gpt.{paddle_name}"
                for torch_name, paddle_name in _GPT2.items()
            },
            "lm_head.weight": {"to": "lm_head.weight", "transform": "copy"},
        },
        "modules": {
            "h.{}": "decoder.layers.{}",
            "transformer.h.{}": "gpt.decoder.layers.{}",
            "transformer": "gpt",
            "*wpe": None,
        },
    },
    **{
        f"transformers' {name} with its head -> paddlenlp's": {
            "map": {"model": name.lower(), "lm_head.weight": _LM_HEAD},
        }
        for name in ("Llama", "Mistral", "Qwen2")
    },
    "transformers' T5 with its head -> paddlenlp's": {
        "map": {**{name: f"t5.{name}" for name in ("shared", "encoder", "decoder")}},
    },
    "transformers' BART, mBART -> paddlenlp's": {
        "map": _BART,
        "modules": {
            **{f"{side}.layers": f"{side}.{side}.layers" for side in ("encoder", "decoder")},
            "*.embed_positions": None,
        },
    },
    "transformers' CLIP -> paddlenlp's": {
        "map": {
            **_below({"*_model.encoder.layers.{}": "*_model.transformer.layers.{}"}, _CLIP_LAYER),
            "*vision_model.embeddings.class_embedding": "*vision_model.class_embedding",
            "*vision_model.embeddings.patch_embedding": "*vision_model.conv1",
            "*vision_model.embeddings.position_embedding": "*vision_model.positional_embedding",
            "*vision_model.pre_layrnorm": "*vision_model.ln_pre",
            "*vision_model.post_layernorm": "*vision_model.ln_post",
            "*text_model.embeddings.token_embedding": "*text_model.token_embedding",
            "*text_model.embeddings.position_embedding": "*text_model.positional_embedding",
            "*text_model.final_layer_norm": "*text_model.ln_final",
            "visual_projection.weight": {"to": "vision_projection", "transform": "transpose"},
            "text_projection.weight": {"to": "text_projection", "transform": "transpose"},
        },
        "modules": {
            "*_model.encoder.layers.{}": "*_model.transformer.layers.{}",
            "*_model": None,
            "*_model.embeddings": None,
            "*_model.embeddings.position_embedding": None,
        },
    },
    "torchvision's or timm's densenet -> paddle.vision's": {
        "map": {
            "features.conv0": "conv1_func._conv",
            "features.norm0": "conv1_func._batch_norm",
            **_below({"features.denseblock1.denselayer{}": "db_conv_2.conv2_{}"}, _DENSE_LAYER),
            **_below({"features.denseblock2.denselayer{}": "db_conv_3.conv3_{}"}, _DENSE_LAYER),
            **_below({"features.denseblock3.denselayer{}": "db_conv_4.conv4_{}"}, _DENSE_LAYER),
            **_below({"features.denseblock4.denselayer{}": "db_conv_5.conv5_{}"}, _DENSE_LAYER),
            **_below(
                {f"features.transition{n}": f"tr_conv{n + 1}_blk.conv_ac_func" for n in (1, 2, 3)},
                {"norm": "_batch_norm", "conv": "_conv"},
            ),
            "features.norm5": "batch_norm",
            "classifier": "out",
        },
        "modules": {
            "features.norm0": None,
            "features.norm5": None,
            "features.transition{}.norm": None,
            "features.denseblock{}.denselayer{}": None,
            "features.denseblock{}.denselayer{}.norm{}": None,
        },
    },
    **{
        f"torchvision's squeezenet{version} -> paddle.vision's": {
            "map": {
                "features.0": "_conv",
                **_below({f"features.{at}": f"_conv{n}" for n, at in enumerate(fires, 1)}, _FIRE),
                "classifier.1": "_conv9",
            },
            "modules": {f"features.{at}": f"_conv{n}" for n, at in enumerate(fires, 1)},
        }
        for version, fires in _FIRES.items()
    },
    "torchvision's alexnet -> paddle.vision's": {
        "map": {
            "features.0": "_conv1._conv",
            "features.3": "_conv2._conv",
            "features.6": "_conv3",
            "features.8": "_conv4",
            "features.10": "_conv5._conv",
            "classifier.1": "_fc6",
            "classifier.4": "_fc7",
            "classifier.6": "_fc8",
        },
    },
    **{
        f"torchvision's mobilenet_v3_{size} -> paddle.vision's": {
            "map": {
                "features.0": "conv",
                **_mobilenet_v3_rows(blocks),
                f"features.{len(blocks) + 1}": "lastconv",
            },
            "modules": {f"features.{n}": f"blocks.{n - 1}" for n in range(1, len(blocks) + 1)},
        }
        for size, blocks in _V3_BLOCKS.items()
    },
    "timm's mobilenetv2 -> paddle.vision's": {
        "map": {
            "conv_stem": "features.0.0",
            "bn1": "features.0.1",
            **_below({"blocks.0.0": "features.1.conv"}, _V2_FIRST),
            **_below(
                {f"blocks.{b}": f"features.{n}.conv" for n, b in enumerate(_V2_BLOCKS[1:], 2)},
                _V2_BLOCK,
            ),
            "conv_head": "features.18.0",
            "bn2": "features.18.1",
            "classifier": "classifier.1",
        },
        "modules": {
            "bn{}": None,
            "blocks.{}.{}.bn{}": None,
            **{f"blocks.{b}": f"features.{n}" for n, b in enumerate(_V2_BLOCKS, 1)},
        },
    },
}
