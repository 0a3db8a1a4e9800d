"""Names of other libraries' models, PyTorch -> Paddle: tables as `name_table` reads them.

Data only. A table is used when it fits every name of both sides; ``*`` stands for what a task model
or the user's own model puts in front. Sources: the state dicts of transformers 4.55, torchvision
0.28, timm 1.0, paddlenlp 3.0 and paddle.vision 3.3. resnet, resnext, wide_resnet, torchvision's vgg
and mobilenet_v2 need no table: only leaf names of the frameworks' own layers differ there.
"""

from __future__ import annotations

from collections.abc import Mapping
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
_V2_DEPTHS = (1, 2, 3, 4, 3, 3, 1)
_V2_FIRST = {"conv_dw": "0.0", "bn1": "0.1", "conv_pw": "1", "bn2": "2"}
_V2_BLOCK = {
    **{"conv_pw": "0.0", "bn1": "0.1", "conv_dw": "1.0", "bn2": "1.1"},
    **{"conv_pwl": "2", "bn3": "3"},
}

_BART_LAYER = {"fc1": "linear1", "fc2": "linear2", "self_attn_layer_norm": "norm1"}
_BART = {
    **{
        f"{side}.layers.{{}}.{theirs}": f"{side}.{side}.layers.{{}}.{own}"
        for side, more in {
            "encoder": {"final_layer_norm": "norm2"},
            "decoder": {
                "encoder_attn": "cross_attn",
                "encoder_attn_layer_norm": "norm2",
                "final_layer_norm": "norm3",
            },
        }.items()
        for theirs, own in {"self_attn": "self_attn", **_BART_LAYER, **more}.items()
    },
    **{
        f"{side}.{name}": f"{side}.{side}_{name}"
        for side in ("encoder", "decoder")
        for name in ("embed_positions", "layernorm_embedding")
    },
    **{f"{side}.layer_norm": f"{side}.{side}.norm" for side in ("encoder", "decoder")},
}
_FIRE = {"squeeze": "_conv", "expand1x1": "_conv_path1", "expand3x3": "_conv_path2"}
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
            **{
                f"*transformer.layer.{{}}.{theirs}": f"*encoder.layers.{{}}.{own}"
                for theirs, own in _DISTILBERT_LAYER.items()
            },
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
                f"transformer.{theirs}": [f"gpt.{name}" for name in own]
                if isinstance(own, list)
                else f"gpt.{own}"
                for theirs, own in _GPT2.items()
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
            **{
                f"*_model.encoder.layers.{{}}.{theirs}": f"*_model.transformer.layers.{{}}.{own}"
                for theirs, own in _CLIP_LAYER.items()
            },
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
            **{
                f"features.denseblock{n}.denselayer{{}}.{theirs}": f"db_conv_{n + 1}.conv{n + 1}"
                f"_{{}}.{own}"
                for n in range(1, 5)
                for theirs, own in _DENSE_LAYER.items()
            },
            **{
                f"features.transition{n}.{kind}": f"tr_conv{n + 1}_blk.conv_ac_func._{own}"
                for n in range(1, 4)
                for kind, own in (("norm", "batch_norm"), ("conv", "conv"))
            },
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
                **{
                    f"features.{at}.{theirs}": f"_conv{n}.{own}._conv"
                    for n, at in enumerate(fires, 1)
                    for theirs, own in _FIRE.items()
                },
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
                **{
                    f"features.{n}.block.{i}": f"blocks.{n - 1}.{_V3_PART[part]}"
                    for n, parts in enumerate(blocks, 1)
                    for i, part in enumerate(parts)
                },
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
            **{
                f"blocks.{s}.{b}.{theirs}": f"features.{1 + sum(_V2_DEPTHS[:s]) + b}.conv.{own}"
                for s, depth in enumerate(_V2_DEPTHS)
                for b in range(depth)
                for theirs, own in (_V2_BLOCK if s else _V2_FIRST).items()
            },
            "conv_head": "features.18.0",
            "bn2": "features.18.1",
            "classifier": "classifier.1",
        },
        "modules": {
            "bn{}": None,
            "blocks.{}.{}.bn{}": None,
            **{
                f"blocks.{s}.{b}": f"features.{1 + sum(_V2_DEPTHS[:s]) + b}"
                for s, depth in enumerate(_V2_DEPTHS)
                for b in range(depth)
            },
        },
    },
}
