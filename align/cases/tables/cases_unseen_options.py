"""Cases of options that no shape shows: activations, layer norm epsilon, triangle, text covariance.

A file with one of these options loads into a model without it and computes something else, so
each is compared by value, forward and backward.
"""

from __future__ import annotations

from typing import Any

from align.cases.kinds.case_kinds import Batch, ModelCase
from align.cases.tables.model_options import encoder

_TINY = encoder(20, 2, 28, 50, 16)
_HEAD = {**_TINY, "num_hidden_layers": 1, "head_num_heads": 3, "wr_dim": 4, "q_dim": 7}
_ACTIVATIONS = ("gelu_new", "gelu_pytorch_tanh", "relu", "silu", "tanh")


def _encoder(name: str, **options: Any) -> ModelCase:
    return ModelCase(f"bert_{name}", "bert_base", {**_TINY, **options}, dtypes=("float64",))


def _head(name: str, **options: Any) -> ModelCase:
    return ModelCase(f"head_{name}", options={**_HEAD, **options}, dtypes=("float64",))


UNSEEN_OPTIONS: tuple[ModelCase, ...] = (
    *(_encoder(f"act_{name}", hidden_act=name) for name in _ACTIVATIONS),
    # a power of two: Paddle's kernel takes its epsilon as float32 (1e-5 shows as 1.4e-10)
    _encoder("layer_norm_eps", layer_norm_eps=2.0**-16),
    ModelCase(  # no forward step: with one token the queries have no effect, nor has their control
        "bert_one_token",
        "bert_base",
        {**_TINY, "pooling": "pooler"},
        steps=("backward",),
        batch=Batch(lengths=(1, 1, 1), length=1),
        dtypes=("float64",),
    ),
    _head("mgcrp_triu", pooling="mgcrp", vec="triu"),
    _head(
        "mgcrp_triu_concat_masked", pooling="mgcrp", vec="triu", fusion="concat", mask_padding=True
    ),
    _head("gcp_text_mpn", pooling="gcp_text"),
    _head("gcp_text_mpn_five", pooling="gcp_text", normalization="mpn", mpn_iter=5),
    _head("gcp_text_svpn", pooling="gcp_text", normalization="svpn"),
    _head("gcp_text_svpn_triu", pooling="gcp_text", normalization="svpn", vec="triu"),
    *(
        _head(f"gcp_text_{fusion}_masked", pooling="gcp_text", fusion=fusion, mask_padding=True)
        for fusion in ("sum_fc", "aggre_all")
    ),
    ModelCase(
        "words_only_gcp_text",
        options={"pooling": "gcp_text", "q_dim": 7, "head_dropout": 0.0},
        subject="words",
        dtypes=("float64",),
    ),
)
