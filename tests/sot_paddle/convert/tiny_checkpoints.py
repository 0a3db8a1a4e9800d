"""Names and shapes of tiny checkpoints of every layout, spelt out apart from the tables they test.

All dimensions differ.
"""

from __future__ import annotations

import numpy as np

VOCAB, HIDDEN, LAYERS, HEADS, INNER, POSITIONS, CLASSES, Q, K = 23, 12, 2, 3, 20, 9, 5, 7, 4


def _layer(i: int) -> dict[str, tuple[int, ...]]:
    p = f"encoder.layer.{i}."
    shapes = {}
    for name in ("self.query", "self.key", "self.value", "output.dense"):
        shapes[f"{p}attention.{name}.weight"] = (HIDDEN, HIDDEN)
        shapes[f"{p}attention.{name}.bias"] = (HIDDEN,)
    shapes[f"{p}intermediate.dense.weight"] = (INNER, HIDDEN)
    shapes[f"{p}intermediate.dense.bias"] = (INNER,)
    shapes[f"{p}output.dense.weight"] = (HIDDEN, INNER)
    shapes[f"{p}output.dense.bias"] = (HIDDEN,)
    for name in ("attention.output", "output"):
        shapes[f"{p}{name}.LayerNorm.weight"] = (HIDDEN,)
        shapes[f"{p}{name}.LayerNorm.bias"] = (HIDDEN,)
    return shapes


def encoder_shapes(prefix: str = "bert.") -> dict[str, tuple[int, ...]]:
    shapes = {
        "embeddings.word_embeddings.weight": (VOCAB, HIDDEN),
        "embeddings.position_embeddings.weight": (POSITIONS, HIDDEN),
        "embeddings.token_type_embeddings.weight": (2, HIDDEN),
        "embeddings.LayerNorm.weight": (HIDDEN,),
        "embeddings.LayerNorm.bias": (HIDDEN,),
    }
    for i in range(LAYERS):
        shapes.update(_layer(i))
    return {prefix + name: shape for name, shape in shapes.items()}


def linear(name: str, fan_out: int, fan_in: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (fan_out, fan_in), f"{name}.bias": (fan_out,)}


def bert(prefix: str = "bert.", *, pooler: bool = True, classifier: bool = True):
    """A plain BERT."""
    shapes = encoder_shapes(prefix)
    shapes |= linear(f"{prefix}pooler.dense", HIDDEN, HIDDEN) if pooler else {}
    return shapes | (linear("classifier", CLASSES, HIDDEN) if classifier else {})


def batch_norm(name: str, width: int) -> dict[str, tuple[int, ...]]:
    parts = ("weight", "bias", "running_mean", "running_var")
    return {**{f"{name}.{part}": (width,) for part in parts}, f"{name}.num_batches_tracked": ()}


def official_head() -> dict[str, tuple[int, ...]]:
    block = "bert.pooler.representation.conv_dr_block."
    return {
        f"{block}0.0.weight": (Q, HIDDEN, 1, 1),
        **batch_norm(f"{block}0.1", Q),
        f"{block}1.0.weight": (K, HIDDEN, 1, 1),
        **batch_norm(f"{block}1.1", K),
        "bert.pooler.normalization.weight": (Q,),
        **linear("bert.pooler.visual_fc", CLASSES, Q * K),
        **linear("bert.pooler.cls_fc", CLASSES, HIDDEN),
    }


def ref_head(name: str) -> dict[str, tuple[int, ...]]:
    """Head tensors of the PyTorch reference."""
    scores = linear("head.cls_fc", CLASSES, HIDDEN)
    p = "head.pooling."
    heads = {
        "pooler": {**linear("head.dense", HIDDEN, HIDDEN), **scores},
        "mgcrp_qk": {
            f"{p}q_proj.weight": (Q, HIDDEN, 1, 1),
            **batch_norm(f"{p}q_norm", Q),
            f"{p}k_proj.weight": (K, HIDDEN, 1, 1),
            **batch_norm(f"{p}k_norm", K),
            f"{p}norm.weight": (Q,),
            **linear("head.word_fc", CLASSES, Q * K),
            **scores,
        },
        "mgcrp": {
            **linear(f"{p}wr", 16, HIDDEN),
            f"{p}norm.weight": (4,),
            **linear("head.word_fc", CLASSES, 32),
            **scores,
        },
        "gcp": {**linear(f"{p}dr", 6, HIDDEN), **linear("head.word_fc", CLASSES, 21), **scores},
        "gcp_text": {
            f"{p}proj.weight": (Q, HIDDEN, 1, 1),
            **batch_norm(f"{p}proj_norm", Q),
            **linear("head.word_fc", CLASSES, Q * (Q + 1) // 2),
            **scores,
        },
        "fc": {**linear("head.proj", 30, HIDDEN), **linear("head.cls_fc", CLASSES, 30)},
        "gap": {**linear("head.word_fc", CLASSES, HIDDEN), **scores},
    }
    return heads[name]


WIDE, MLP, BLOCKS, TOKENS, PATCH, MATRIX = 12, 20, 2, 9, 4, 3


def norm(name: str, width: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}


def block(name: str, wide: int, mlp: int, *, qkv_bias: bool = True) -> dict[str, tuple[int, ...]]:
    shapes = {
        **norm(f"{name}.norm1", wide),
        **linear(f"{name}.attn.qkv", 3 * wide, wide),
        **linear(f"{name}.attn.proj", wide, wide),
        **norm(f"{name}.norm2", wide),
        **linear(f"{name}.mlp.fc1", mlp, wide),
        **linear(f"{name}.mlp.fc2", wide, mlp),
    }
    if not qkv_bias:
        del shapes[f"{name}.attn.qkv.bias"]
    return shapes


def vit_backbone(*, qkv_bias: bool) -> dict[str, tuple[int, ...]]:
    shapes = {"cls_token": (1, 1, WIDE), "pos_embed": (1, 1 + TOKENS, WIDE), **norm("norm", WIDE)}
    for i in range(BLOCKS):
        shapes.update(block(f"blocks.{i}", WIDE, MLP, qkv_bias=qkv_bias))
    return shapes


def patch_embed(wide: int) -> dict[str, tuple[int, ...]]:
    return {"patch_embed.proj.weight": (wide, 3, PATCH, PATCH), "patch_embed.proj.bias": (wide,)}


def sot_official(*, dense_norm: bool = False) -> dict[str, tuple[int, ...]]:
    """The original release: dense tokens, no bias of queries, keys and values, MGCrP."""
    tokens = "visual_tokens.tokens."
    shapes = vit_backbone(qkv_bias=False)
    shapes |= {f"{tokens}stem.0.weight": (64, 3, 3, 3), f"{tokens}stem.0.bias": (64,)}
    for stage, (dense, reduced) in {0: (64, 160), 2: (128, 224), 4: (128, 224)}.items():
        for number in range(1, 7):
            layer, wide = f"{tokens}stage.{stage}.denselayer{number}.", dense + 16 * (number - 1)
            shapes |= {f"{layer}conv1.weight": (32, wide, 1, 1)}
            shapes |= {f"{layer}conv2.weight": (16, 32, 3, 3)}
            if dense_norm:
                shapes |= batch_norm(f"{layer}norm1", wide) | batch_norm(f"{layer}norm2", 32)
        shapes |= batch_norm(f"{tokens}stage.{stage + 1}.norm", reduced)
        shapes |= {f"{tokens}stage.{stage + 1}.conv.weight": (128, reduced, 1, 1)}
    shapes |= {f"{tokens}transition.weight": (WIDE, 128, 1, 1), f"{tokens}transition.bias": (WIDE,)}
    return shapes | {
        "classifier.representation.wr.weight": (16, WIDE),
        "classifier.representation.norm.weight": (4,),
        **linear("classifier.visual_fc", CLASSES, 32),
        **linear("classifier.cls_fc", CLASSES, WIDE),
    }


def deit() -> dict[str, tuple[int, ...]]:
    return {**vit_backbone(qkv_bias=True), **patch_embed(WIDE), **linear("head", CLASSES, WIDE)}


def swin(*, microsoft: bool) -> dict[str, tuple[int, ...]]:
    """Two stages of one and two blocks, 2 and 3 heads, windows of `MATRIX` tokens."""
    shapes = {**patch_embed(WIDE), **norm("patch_embed.norm", WIDE), **norm("norm", 2 * WIDE)}
    for stage, (blocks, heads) in enumerate(((1, 2), (2, 3))):
        for i in range(blocks):
            name = f"layers.{stage}.blocks.{i}"
            shapes |= block(name, WIDE * 2**stage, MLP * 2**stage)
            shapes |= {f"{name}.attn.relative_position_bias_table": ((2 * MATRIX - 1) ** 2, heads)}
            if microsoft:
                shapes |= {f"{name}.attn.relative_position_index": (MATRIX**2, MATRIX**2)}
                shapes |= {f"{name}.attn_mask": (4, MATRIX**2, MATRIX**2)} if i % 2 else {}
    merge = f"layers.{0 if microsoft else 1}.downsample"
    shapes |= {**norm(f"{merge}.norm", 4 * WIDE), f"{merge}.reduction.weight": (24, 4 * WIDE)}
    return shapes | linear("head" if microsoft else "head.fc", CLASSES, 2 * WIDE)


LAYOUTS = {
    "bert_hf": bert,
    "sot_nlp_official": lambda: {**encoder_shapes(), **official_head()},
    "sot_official": sot_official,
    "deit_timm": deit,
    "deit_official": deit,
    "swin_timm": lambda: swin(microsoft=False),
    "swin_microsoft": lambda: swin(microsoft=True),
}
MODELS = {
    **{"bert_hf": "bert_base", "sot_nlp_official": "bert_base_mgcrp", "sot_official": "sot_tiny"},
    **{"deit_timm": "deit_tiny", "deit_official": "deit_tiny"},
    **{"swin_timm": "swin_tiny", "swin_microsoft": "swin_tiny"},
}


def fill(shapes: dict[str, tuple[int, ...]], dtype: str = "float32") -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {
        name: np.asarray(7, np.int64)
        if name.endswith("num_batches_tracked")
        else rng.normal(size=shape).astype(dtype)
        for name, shape in shapes.items()
    }
