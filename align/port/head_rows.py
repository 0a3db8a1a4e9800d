"""HEAD_ROWS: every pooling, normalization and fusion on a small BERT, and heads alone; no logic."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from align.port.row import FLOAT64, HEAD, Batch, PortRow, encoder
from align.port.text_rows import PUBLISHED_ADAPTERS
from sot_paddle.config import WORD_POOLINGS

_POOLINGS = tuple(name for name in WORD_POOLINGS if name != "gcp_text")  # it has rows of its own
_FUSIONS = ("sum_fc", "concat", "aggre_all", "sum_loss", "class_token", "word_tokens")
_MGCRP, _GCP, _GCP_TEXT = ({"pooling": name} for name in ("mgcrp", "gcp", "gcp_text"))
_MASKED = {"mask_padding": True}
_HEAD = {**encoder(20, 1, 28, 100, 64), **HEAD}
# sizes of the heads are their defaults, but of these
_TRIANGLE = {**encoder(20, 1, 28, 50, 16), "head_num_heads": 3, "wr_dim": 4, "q_dim": 7}
_FEW_WORDS = {**encoder(20, 1, 28, 30, 16), **HEAD}


def _rows(
    sizes: Mapping[str, Any], heads: Mapping[str, Mapping[str, Any]], **more: Any
) -> tuple[PortRow, ...]:
    """Return a row for each head, by its name and options."""
    return tuple(
        PortRow(f"head_{name}", options={**sizes, **options}, **more)
        for name, options in heads.items()
    )


_PRODUCT = {
    f"{pooling}_{fusion}": {"pooling": pooling, "fusion": fusion}
    for pooling, fusion in itertools.product(_POOLINGS, _FUSIONS)
}
_HEADS: dict[str, dict[str, Any]] = {
    **_PRODUCT,
    **{pooling: {"pooling": pooling} for pooling in ("fc", "none", "score")},
    **{
        f"mgcrp_norm_{norm}": {**_MGCRP, "normalization": norm}
        for norm in ("sqrt_d", "sqrt_t", "ln", "none")
    },
    "mgcrp_qk_norm_none": {"pooling": "mgcrp_qk", "normalization": "none"},
    "mgcrp_norm_epn": {**_MGCRP, "normalization": "epn"},
    "mgcrp_qk_norm_epn": {"pooling": "mgcrp_qk", "normalization": "epn"},
    **{
        f"{name}_masked": {**options, **_MASKED}
        for name, options in _PRODUCT.items()
        if options["fusion"] in ("sum_fc", "aggre_all")
    },
    "mgcrp_bias": {**_MGCRP, "qkv_bias": True},
    "mgcrp_channel_centering": {**_MGCRP, "centering": "channel"},
    "mgcrp_start_one": {**_MGCRP, "start": "one"},
    "mgcrp_alpha": {**_MGCRP, "alpha": 0.3},
    "mgcrp_two_iterations_two_values": {**_MGCRP, "num_iter": 2, "num_sv": 2},
    "mgcrp_all_values": {**_MGCRP, "num_iter": 4, "num_sv": None},
    "gcp_true_covariance": {**_GCP, "centering": "channel", "covariance_scale": "tokens"},
    "gcp_five_iterations": {**_GCP, "mpn_iter": 5},
}
_TRIANGLES: dict[str, dict[str, Any]] = {
    "mgcrp_triu": {**_MGCRP, "vec": "triu"},
    "mgcrp_triu_concat_masked": {**_MGCRP, "vec": "triu", "fusion": "concat", **_MASKED},
    "gcp_text_mpn": _GCP_TEXT,
    "gcp_text_mpn_five": {**_GCP_TEXT, "normalization": "mpn", "mpn_iter": 5},
    "gcp_text_svpn": {**_GCP_TEXT, "normalization": "svpn"},
    "gcp_text_svpn_triu": {**_GCP_TEXT, "normalization": "svpn", "vec": "triu"},
    "gcp_text_sum_fc_masked": {**_GCP_TEXT, "fusion": "sum_fc", **_MASKED},
    "gcp_text_aggre_all_masked": {**_GCP_TEXT, "fusion": "aggre_all", **_MASKED},
}
_EXACT = {"mgcrp": {"centering": "channel"}, "gcp": {"covariance_scale": "tokens"}}
_ONE_WORD_OR_NONE: dict[str, dict[str, Any]] = {
    **{f"{p}_few_words": {"pooling": p, **_EXACT.get(p, {}), **_MASKED} for p in _POOLINGS},
    "mgcrp_epn_few_words": {**_MGCRP, "normalization": "epn", **_MASKED},
}
_WORDS = {**HEAD, "head_dropout": 0.0}
_STATES = {"num_layers": 4, "hidden_size": 13, "seq_length": 6}
_ADAPTERS = tuple(
    PortRow(
        name,
        model,
        {**_STATES, **options},
        subject="states",
        num_classes=num_classes,
        batch=Batch(lengths=(6,) * 5, length=6),
        recipe=recipe,
    )
    for name, model, options, num_classes, recipe in (
        ("adapter_classifier", "AdapterClassifier", {}, 3, PUBLISHED_ADAPTERS),
        ("adapter_regression", "AdapterClassifier", {"adapter_dim": 7}, 1, None),
        ("adapter_spans", "AdapterSpans", {}, 3, PUBLISHED_ADAPTERS),
        ("adapter_spans_width", "AdapterSpans", {"adapter_dim": 7}, 3, None),
        ("layer_classifiers", "LayerClassifiers", {}, 3, None),
        ("layer_classifiers_regression", "LayerClassifiers", {}, 1, None),
        ("layer_spans", "LayerSpans", {}, 3, None),
    )
)

HEAD_ROWS: tuple[PortRow, ...] = (
    # a draw that no head of the list amplifies: rounding explains 2e-4 of a tensor at most
    *_rows(_HEAD, _HEADS, batch=Batch(seed=10)),
    *_rows(_TRIANGLE, _TRIANGLES, dtypes=FLOAT64),
    # a class token and 6, 1, 0 and 4 words
    *_rows(_FEW_WORDS, _ONE_WORD_OR_NONE, batch=Batch((7, 2, 1, 5), length=8), dtypes=FLOAT64),
    *_rows(
        _FEW_WORDS,
        {"mgcrp_sum_loss_eval": {**_MGCRP, "fusion": "sum_loss"}},
        dtypes=FLOAT64,
        train=False,
    ),
    *(
        PortRow(f"words_only_{pooling}", options={"pooling": pooling, **_WORDS}, subject="words")
        for pooling in _POOLINGS
    ),
    PortRow(
        "words_only_gcp_text",
        options={**_GCP_TEXT, "q_dim": 7, "head_dropout": 0.0},
        subject="words",
        dtypes=FLOAT64,
    ),
    *_ADAPTERS,
)
