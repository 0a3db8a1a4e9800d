"""HEAD_ROWS: every pooling, normalization and fusion on a small BERT, and heads alone; no logic."""

from __future__ import annotations

import functools
import itertools
from typing import Any

from align.port.row import HEAD, Batch, PortRow, encoder
from align.port.text_rows import PUBLISHED_ADAPTERS
from sot_paddle.config import WORD_POOLINGS

_FLOAT64 = ("float64",)
_float64_row = functools.partial(PortRow, dtypes=_FLOAT64)
_POOLINGS = tuple(name for name in WORD_POOLINGS if name != "gcp_text")  # it has rows of its own
_FUSIONS = ("sum_fc", "concat", "aggre_all", "sum_loss", "class_token", "word_tokens")
_HEAD = {**encoder(20, 1, 28, 100, 64), **HEAD}
# sizes of the heads are their defaults, but of these
_TRIANGLE = {**encoder(20, 1, 28, 50, 16), "head_num_heads": 3, "wr_dim": 4, "q_dim": 7}
_FEW_WORDS = {**encoder(20, 1, 28, 30, 16), **HEAD}


def _head(name: str, **options: Any) -> PortRow:
    # a draw that no head of the list amplifies: rounding explains 2e-4 of a tensor at most
    return PortRow(f"head_{name}", options={**_HEAD, **options}, batch=Batch(seed=10))


_HEADS = (
    *(
        _head(f"{pooling}_{fusion}", pooling=pooling, fusion=fusion)
        for pooling, fusion in itertools.product(_POOLINGS, _FUSIONS)
    ),
    *(_head(pooling, pooling=pooling) for pooling in ("fc", "none", "score")),
    *(
        _head(f"mgcrp_norm_{norm}", pooling="mgcrp", normalization=norm)
        for norm in ("sqrt_d", "sqrt_t", "ln", "none")
    ),
    _head("mgcrp_qk_norm_none", pooling="mgcrp_qk", normalization="none"),
    *(
        _head(f"{pooling}_norm_epn", pooling=pooling, normalization="epn")
        for pooling in ("mgcrp", "mgcrp_qk")
    ),
    *(
        _head(f"{pooling}_{fusion}_masked", pooling=pooling, fusion=fusion, mask_padding=True)
        for pooling, fusion in itertools.product(_POOLINGS, ("sum_fc", "aggre_all"))
    ),
    _head("mgcrp_bias", pooling="mgcrp", qkv_bias=True),
    _head("mgcrp_channel_centering", pooling="mgcrp", centering="channel"),
    _head("mgcrp_start_one", pooling="mgcrp", start="one"),
    _head("mgcrp_alpha", pooling="mgcrp", alpha=0.3),
    _head("mgcrp_two_iterations_two_values", pooling="mgcrp", num_iter=2, num_sv=2),
    _head("mgcrp_all_values", pooling="mgcrp", num_iter=4, num_sv=None),
    _head("gcp_true_covariance", pooling="gcp", centering="channel", covariance_scale="tokens"),
    _head("gcp_five_iterations", pooling="gcp", mpn_iter=5),
)

_TRIANGLES = tuple(
    _float64_row(f"head_{name}", options={**_TRIANGLE, **options})
    for name, options in (
        ("mgcrp_triu", {"pooling": "mgcrp", "vec": "triu"}),
        (
            "mgcrp_triu_concat_masked",
            {"pooling": "mgcrp", "vec": "triu", "fusion": "concat", "mask_padding": True},
        ),
        ("gcp_text_mpn", {"pooling": "gcp_text"}),
        ("gcp_text_mpn_five", {"pooling": "gcp_text", "normalization": "mpn", "mpn_iter": 5}),
        ("gcp_text_svpn", {"pooling": "gcp_text", "normalization": "svpn"}),
        ("gcp_text_svpn_triu", {"pooling": "gcp_text", "normalization": "svpn", "vec": "triu"}),
        (
            "gcp_text_sum_fc_masked",
            {"pooling": "gcp_text", "fusion": "sum_fc", "mask_padding": True},
        ),
        (
            "gcp_text_aggre_all_masked",
            {"pooling": "gcp_text", "fusion": "aggre_all", "mask_padding": True},
        ),
    )
)

_EXACT = {"mgcrp": {"centering": "channel"}, "gcp": {"covariance_scale": "tokens"}}
_ONE_WORD_OR_NONE = tuple(
    PortRow(
        f"head_{name}_few_words",
        options={**_FEW_WORDS, "mask_padding": True, **options},
        batch=Batch(lengths=(7, 2, 1, 5), length=8),  # a class token and 6, 1, 0 and 4 words
        dtypes=_FLOAT64,
    )
    for name, options in (
        *((name, {"pooling": name, **_EXACT.get(name, {})}) for name in _POOLINGS),
        ("mgcrp_epn", {"pooling": "mgcrp", "normalization": "epn"}),
    )
)

_NO_CLASS_TOKEN = (
    *(
        PortRow(
            f"words_only_{pooling}",
            options={"pooling": pooling, **HEAD, "head_dropout": 0.0},
            subject="words",
        )
        for pooling in _POOLINGS
    ),
    _float64_row(
        "words_only_gcp_text",
        options={"pooling": "gcp_text", "q_dim": 7, "head_dropout": 0.0},
        subject="words",
    ),
)


def _on_states(name: str, model: str, **more: Any) -> PortRow:
    sizes = {"num_layers": 4, "hidden_size": 13, "seq_length": 6, **more.pop("options", {})}
    batch = Batch(lengths=(6,) * 5, length=6)
    return PortRow(name, model, sizes, subject="states", batch=batch, **more)


_ADAPTERS = (
    _on_states("adapter_classifier", "adapter_classifier", recipe=PUBLISHED_ADAPTERS),
    _on_states(
        "adapter_regression", "adapter_classifier", num_classes=1, options={"adapter_dim": 7}
    ),
    _on_states("adapter_spans", "adapter_spans", recipe=PUBLISHED_ADAPTERS),
    _on_states("adapter_spans_width", "adapter_spans", options={"adapter_dim": 7}),
    _on_states("layer_classifiers", "layer_classifiers"),
    _on_states("layer_classifiers_regression", "layer_classifiers", num_classes=1),
    _on_states("layer_spans", "layer_spans"),
)

HEAD_ROWS: tuple[PortRow, ...] = (
    *_HEADS,
    *_TRIANGLES,
    *_ONE_WORD_OR_NONE,
    _float64_row(
        "head_mgcrp_sum_loss_eval",
        options={**_FEW_WORDS, "pooling": "mgcrp", "fusion": "sum_loss"},
        train=False,
    ),
    *_NO_CLASS_TOKEN,
    *_ADAPTERS,
)
