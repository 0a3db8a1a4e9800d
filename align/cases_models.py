"""The part of the table with models in unusual shapes and states; no logic.

Grids that need padding, other windows, evaluation of two losses, sentences with one word or none,
another padding id, every activation, tables made for another size, what is built and what is drawn.
"""

from __future__ import annotations

from typing import Any

from align.case_kinds import Batch, Case, ImageBatch, ModelCase

_BERT = {
    "hidden_size": 20,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "intermediate_size": 28,
    "vocab_size": 30,
    "max_position_embeddings": 16,
    "q_dim": 7,
    "k_dim": 5,
    "head_num_heads": 3,
    "wr_dim": 4,
    "qkv_dim": 6,
    "head_dropout": 0.0,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
_SWIN = {"embed_dim": 12, "depths": (2, 1), "num_heads": (2, 3), "mlp_ratio": 2.0}
_SOT = {
    "embed_dim": 20,
    "depth": 1,
    "num_heads": 4,
    "mlp_ratio": 1.5,
    "token_type": "linear",
    "head_num_heads": 3,
    "wr_dim": 4,
    "head_dropout": 0.0,
}
_FEW_WORDS = Batch(lengths=(7, 2, 1, 5), length=8)  # of a class token and 6, 1, 0 and 4 words
_PADDED = Batch()
_FLOAT64 = ("float64",)


def _text(name: str, train: bool = True, batch: Batch = _PADDED, **options: Any) -> ModelCase:
    return ModelCase(name, options={**_BERT, **options}, train=train, batch=batch, dtypes=_FLOAT64)


def _image(name: str, model: str, size: int, train: bool = True, **options: Any) -> ModelCase:
    return ModelCase(
        name,
        model,
        {"img_size": size, **options},
        subject="images",
        num_classes=5,
        train=train,
        batch=ImageBatch(samples=2, size=size),
        dtypes=_FLOAT64,
    )


_GRIDS = (
    # 5 x 5 tokens in windows of 4, shifted by 2: padded to 8 x 8; merged to 3 x 3, which is odd too
    _image("swin_padded_grid", "swin_tiny", 20, window_size=4, **_SWIN),
    _image("swin_window_8", "swin_tiny", 36, window_size=8, **_SWIN),  # 9 x 9 tokens
)

_WORDS = tuple(
    _text(
        f"head_{pooling}_few_words", batch=_FEW_WORDS, pooling=pooling, mask_padding=True, **options
    )
    for pooling, options in (
        ("mgcrp", {"centering": "channel"}),
        ("mgcrp_qk", {}),
        ("gap", {}),
        ("gcp", {"covariance_scale": "tokens"}),
    )
)

_OPTIONS = (
    _text("head_mgcrp_sum_loss_eval", train=False, pooling="mgcrp", fusion="sum_loss"),
    _image("sot_sum_loss_eval", "sot_tiny", 28, train=False, fusion="sum_loss", **_SOT),
    _text("bert_pad_id", pad_token_id=5),
    _text("bert_relu", hidden_act="relu"),
    _image("sot_qk_scale", "sot_tiny", 28, qk_scale=0.7, **_SOT),
    _image("sot_linear_224", "sot_tiny", 224, **_SOT),
)

MODELS: tuple[Case, ...] = (*_GRIDS, *_WORDS, *_OPTIONS)
