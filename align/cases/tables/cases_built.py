"""What the suite compares before any weight is loaded: every model as built, and every default."""

from __future__ import annotations

from typing import Any

from align.cases.kinds.case_kinds import ValueCase, value_cases
from align.cases.sides.built_records import ABSENT, StatedDifference

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


def _built(
    name: str, model: str, options: dict[str, Any], *, quick: bool = True, **more: Any
) -> ValueCase:
    given = {"name": model, "options": options, "published": _COUNTS.get(name), **more}
    return ValueCase(f"built_{name}", "built_values:model", given, steps=("built",), quick=quick)


def _text(
    model: str,
    name: str = "",
    *,
    width: int = 768,
    precision: str = "float32",
    quick: bool = True,
    **options: Any,
) -> ValueCase:
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
    return _built(name or model, model, options, differences=rows, precision=precision, quick=quick)


def _vision(model: str, name: str = "", *, precision: str = "float32", **options: Any) -> ValueCase:
    return _built(name or model, model, options, precision=precision)


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
}
"""Counts of the specification: A.8, A.9, B.1."""

_MODELS = (
    _text("bert_base"),
    _text("bert_base_mgcrp"),
    _text("bert_large", width=1024),
    _text("bert_large_mgcrp", width=1024),
    _text("spanbert_base", quick=False),
    _text("spanbert_base_mgcrp", quick=False),
    _text("spanbert_large", width=1024, quick=False),
    _text("spanbert_large_mgcrp", width=1024, quick=False),
    _text("roberta_base"),
    _text("roberta_base_mgcrp", quick=False),
    _text("roberta_large", width=1024, quick=False),
    _text("roberta_large_mgcrp", width=1024, quick=False),
    _text("openai_gpt", quick=False),
    _text("openai_gpt_mgcrp", quick=False),
    _text("conv_bert_base", quick=False),
    _text("conv_bert_base_mgcrp", quick=False),
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
_CONVOLVED = {
    **_LITTLE,
    "num_attention_heads": 4,
    "pad_token_id": 7,
    "embedding_size": 20,
    "hidden_act": "relu",
    "hidden_dropout_prob": 0.15,
    "attention_probs_dropout_prob": 0.25,
    "layer_norm_eps": 1e-6,
    "initializer_range": 0.03,
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
    _text("bert_base_mgcrp", "head_gap", **_LITTLE, pooling="gap", fusion="aggre_all"),
    _text("bert_base_mgcrp", "head_gcp", **_LITTLE, pooling="gcp", fusion="concat"),
    _text("bert_base_mgcrp", "head_gcp_text", **_LITTLE, pooling="gcp_text", normalization="mpn"),
    _text("bert_base_mgcrp", "head_word_tokens", **_LITTLE, fusion="word_tokens"),
    _text("bert_base_mgcrp", "head_class_token", **_LITTLE, fusion="class_token"),
    _text("bert_base_mgcrp", "head_sum_loss", **_LITTLE, fusion="sum_loss", start="one"),
    _text("bert_base_mgcrp", "head_masked", **_LITTLE, mask_padding=True, freeze_encoder=True),
    _text(
        "bert_base_mgcrp",
        "text_rates",
        **_LITTLE,
        **{
            "hidden_dropout_prob": 0.15,
            "attention_probs_dropout_prob": 0.25,
            "layer_norm_eps": 1e-6,
        },
    ),
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

_DRAWS = value_cases(
    "drawn_weights:drawn_weights",
    {
        "built_draws_text": {"name": "bert_base_mgcrp", "options": _LITTLE},
        "built_draws_tokens": {"name": "sot_tiny", "options": {"depth": 1}},
        "built_draws_windows": {
            "name": "swin_tiny",
            "options": {"depths": (1, 1, 1), "num_heads": (3, 6, 12)},
        },
    },
    steps=("built",),
)

_ALWAYS_GIVEN = "every model states it; alone it is never used"
_SCRIPT = (
    "the vision release's script of SoT-Tiny and Small, not main.py, which no script runs bare"
)
_FOLDER = "read off the class folders of the data"
_REQUIRED = "must be given, so that no run trains another model than meant"
_OWN_TEXT = (
    *("do_predict", "seeds", "resume", "eval_steps", "save_total_limit", "keep_states"),
    *("cpu_precision", "accept_other_operators"),
)
_OWN_IMAGE = (
    *("model_options", "cache", "cpu", "save_epochs", "save_total_limit", "keep_states"),
    *("overwrite_output_dir", "early_stopping_patience", "eval_all_checkpoints"),
    *("model_ema_warmup", "cpu_precision", "exif_orientation", "accept_other_operators"),
)
"""Options about files, speed and several runs, which the originals do not have."""


def _differs(name: str, ours: Any, reference: Any, why: str) -> StatedDifference:
    return StatedDifference(name, "default", ours, reference, why)


def _default(
    name: str,
    table: str,
    differences: tuple[StatedDifference, ...] = (),
    own: tuple[str, ...] = (),
    *,
    quick: bool = True,
) -> ValueCase:
    given = {"name": table, "differences": differences, "own": own}
    return ValueCase(name, "default_values:table", given, steps=("built",), quick=quick)


_VIT_GIVEN = {"embed_dim": 240, "depth": 12, "num_heads": 4, "mlp_ratio": 2.5}
_UNSTATED = (
    StatedDifference(
        "openai_gpt: written", "pad_token_id", 0, ABSENT, "transformers' GPT has no padding id"
    ),
    StatedDifference(
        "openai_gpt: read", "type_vocab_size", ABSENT, 1, "transformers' GPT has no token types"
    ),
    StatedDifference(
        "openai_gpt: read", "pad_token_id", ABSENT, 0, "transformers' GPT has no padding id"
    ),
)
_DEFAULTS = (
    _default("defaults_hf_adamw", "hf_adamw"),
    _default("defaults_adamw", "adamw"),
    _default("defaults_trainers", "trainers", quick=False),
    _default("defaults_epochs", "schedule by epoch"),
    _default("defaults_moving_average", "moving average"),
    _default("defaults_functions", "functions"),
    _default("defaults_shared_names", "shared names"),
    _default("defaults_counterparts", "counterparts"),
    _default(
        "defaults_head",
        "head options",
        (_differs("pooling", "mgcrp", "mgcrp_qk", _ALWAYS_GIVEN),),
    ),
    _default("defaults_encoder", "encoder options"),
    _default("config_files", "config files", _UNSTATED),
    _default("defaults_conv_encoder", "conv encoder options"),
    _default(
        "defaults_vit",
        "vit options",
        tuple(_differs(*given, ABSENT, _ALWAYS_GIVEN) for given in _VIT_GIVEN.items()),
    ),
    _default("defaults_swin", "swin options", (_differs("embed_dim", 96, ABSENT, _ALWAYS_GIVEN),)),
    _default("defaults_text_flags", "text flags", own=_OWN_TEXT),
    _default("defaults_document_flags", "document flags"),
    _default(
        "defaults_image_flags",
        "image flags",
        (
            _differs("lr", 1e-3, 5e-4, _SCRIPT),
            _differs("weight_decay", 0.03, 0.05, _SCRIPT),
            _differs("batch_size", 128, 64, _SCRIPT),
            _differs("cooldown_epochs", 0, 10, "--epochs 2 trains two; the configurations give 10"),
            _differs("model", "", "SoT_Tiny", _REQUIRED),
            _differs("num_classes", None, 1000, _FOLDER),
            _differs("resume", "auto", "", "a command that is typed again continues its run"),
            _differs("workers", 4, 8, "enters no result; a run has two to four cores here"),
        ),
        own=_OWN_IMAGE,
    ),
    _default("defaults_image_data", "image data"),
    _default("defaults_published_layers", "published layers"),
    _default("defaults_image_recipes", "image recipes"),
    _default("defaults_text_recipes", "text recipes"),
    _default("tables_image_options", "image options"),
    _default("tables_run_options", "run options"),
    _default("tables_randaugment", "RandAugment texts"),
    _default("tables_glue_tasks", "glue tasks"),
    _default("tables_token_grids", "token grids"),
    _default("tables_models", "models"),
    _default("tables_adapter", "adapter"),
    _default("tables_pretraining", "pre-training"),
    _default("tables_head_settings", "head settings"),
)

BUILT = (*_MODELS, *_PRESETS, *_EMBEDDINGS, *_VARIANTS, *_HEADS, *_FLOAT64, *_DRAWS, *_DEFAULTS)
