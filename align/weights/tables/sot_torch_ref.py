"""Table: this project's PyTorch reference: transformers' encoder names, the head's own names.

Symbols of the heads: K classes, L width of the class tokens of layers, R that of the word
representation, D that of the class token, q and k of the single-head MGCrP, W = 2 * heads * wr_dim,
w = wr_dim, c reduced width of GCP, d width of the text release's covariance.
"""

from __future__ import annotations

import dataclasses

from align.weights.engine.layout import HeadTable, Layout, Row
from align.weights.tables import gpt_hf
from align.weights.tables.hf_encoder import CONFIG, PREFIX, ROBERTA, encoder, ignored, linear
from align.weights.tables.vision_rows import COUNTED, batch_norm, layer_norm

COUNTERS = {
    f"head.pooling.{name}.num_batches_tracked": f"head.pooling.{name}.running_mean"
    for name in ("q_norm", "k_norm", "proj_norm")
}
"""Counter of each batch normalisation of a head -> Paddle tensor beside which it is written."""


def _same(name: str, kind: str, *shape: str, optional: bool = False) -> Row:
    """A tensor with one name on both sides."""
    return Row(name, name, kind, shape, optional=optional)


def _linear(name: str, fan_out: str, fan_in: str) -> tuple[Row, Row]:
    return linear(name, name, fan_out, fan_in)


def _branch(name: str, width: str, channels: str) -> tuple[Row, ...]:
    """Projection and BatchNorm of one branch of the single-head MGCrP."""
    return (
        _same(f"head.pooling.{name}_proj.weight", "conv1x1_to_linear", width, channels, "1", "1"),
        *batch_norm(f"head.pooling.{name}_norm", f"head.pooling.{name}_norm", width),
    )


def heads(width: str, *, class_token: bool) -> dict[str, HeadTable]:
    """The rows of every head.

    Args:
        width: symbol of the channels of the tokens.
        class_token: False for a backbone without one: no classifier of it, and no head of it.

    Returns:
        Head name -> rows.
    """
    of_class = _linear("head.cls_fc", "K", width) if class_token else ()
    scores = (*_linear("head.word_fc", "K", "R"), *of_class)
    tables = {
        "mgcrp_qk": (
            *_branch("q", "q", width),
            *_branch("k", "k", width),
            _same("head.pooling.norm.weight", "vector", "q"),
            *scores,
        ),
        "mgcrp": (
            _same("head.pooling.wr.weight", "linear", "W", width),
            _same("head.pooling.wr.bias", "bias", "W", optional=True),
            _same("head.pooling.norm.weight", "vector", "w"),
            _same("head.pooling.norm.bias", "norm", "w", optional=True),
            _same("head.pooling.norm.factor", "scalar", optional=True),
            *scores,
        ),
        "gcp": (*_linear("head.pooling.dr", "c", width), *scores),
        "gcp_text": (
            _same("head.pooling.proj.weight", "conv1x1_to_linear", "d", width, "1", "1"),
            *batch_norm("head.pooling.proj_norm", "head.pooling.proj_norm", "d"),
            _same("head.pooling.norm.weight", "vector", "d", optional=True),
            *scores,
        ),
        "gap": scores,
    }
    if class_token:
        tables["pooler"] = (*_linear("head.dense", width, width), *of_class)
        tables["fc"] = (*_linear("head.proj", "D", width), *_linear("head.cls_fc", "K", "D"))
        tables["none"] = of_class
        tables["layers"] = _linear("head.cls_fc", "K", "L")
    return {name: HeadTable(rows=rows) for name, rows in tables.items()}


_HEADS = {name: rows for name, rows in heads("C", class_token=True).items() if name != "none"}


def _text(family: str, prefix: str) -> Layout:
    return Layout(
        description="this project's PyTorch reference, sot_torch_ref",
        family=family,
        encoder=encoder(prefix),
        heads=_HEADS,
        ignored={**ignored(prefix), **dict.fromkeys(COUNTERS, COUNTED)},
        counters=COUNTERS,
        config=CONFIG,
    )


BERT, ROBERTA_MODEL = _text("bert", PREFIX), _text("roberta", ROBERTA)

_SCORE = (
    _same("head.cls_fc.weight", "linear", "K", "C"),
    _same("head.cls_fc.bias", "bias", "K", optional=True),
)
GPT = Layout(
    description=BERT.description,
    family="gpt",
    encoder=gpt_hf.encoder("gpt."),
    heads={**_HEADS, "score": HeadTable(rows=_SCORE)},
    ignored={**gpt_hf.ignored("gpt."), **dict.fromkeys(COUNTERS, COUNTED)},
    counters=COUNTERS,
    config=gpt_hf.CONFIG,
    depth_key=gpt_hf.DEPTH,
)

_CONV = "conv_bert.layers.{}."


def _optional(*rows: Row) -> tuple[Row, ...]:
    """Rows of tensors that only some kernels and projections have."""
    return tuple(dataclasses.replace(row, optional=True) for row in rows)


def _projection(name: str, symbol: str) -> tuple[Row, ...]:
    """Queries, keys or values; ``symbol`` tells the widths of one from those of another."""
    name, channels = f"{_CONV}self_attn.{name}", f"conv{symbol}"
    return _optional(
        *_linear(f"{name}.linear", f"linear{symbol}", "C"),
        *_linear(f"{name}.pointwise", f"point{symbol}", "A"),
        _same(f"{name}.conv.weight", "conv", channels, f"group{symbol}", f"width{symbol}"),
        _same(f"{name}.conv.bias", "bias", channels),
    )


_EMBEDDINGS, _ATTENTION = "conv_bert.embeddings.", f"{_CONV}self_attn."
CONV_BERT = Layout(
    description=BERT.description,
    family="conv_bert",
    encoder=(
        _same(f"{_EMBEDDINGS}word_embeddings.weight", "embedding", "V", "E"),
        *_optional(_same(f"{_EMBEDDINGS}position_embeddings.weight", "embedding", "P", "E")),
        _same(f"{_EMBEDDINGS}token_type_embeddings.weight", "embedding", "T", "E"),
        *layer_norm(f"{_EMBEDDINGS}LayerNorm", f"{_EMBEDDINGS}layer_norm", "E"),
        *_optional(*_linear(f"{_EMBEDDINGS}projection", "C", "E")),
        *_projection("query", "Q"),
        *_projection("key", "Q"),
        *_projection("value", "A"),
        *_optional(
            _same(f"{_ATTENTION}convfixed", "vector", "1", "heads", "1", "near"),
            _same(f"{_ATTENTION}convq", "vector", "each", "near"),
            _same(f"{_ATTENTION}convk", "vector", "each", "near"),
            _same(f"{_ATTENTION}span.conv.weight", "conv", "C", "1", "9"),
            _same(f"{_ATTENTION}span.conv.bias", "bias", "C"),
            *_linear(f"{_ATTENTION}span.pointwise", "linearQ", "C"),
            *_linear(f"{_ATTENTION}span.kernel", "9*half", "linearQ"),
            _same(f"{_ATTENTION}convolution.weight", "conv", "A", "1", "near"),
            _same(f"{_ATTENTION}convolution.bias", "bias", "A"),
            _same(f"{_ATTENTION}factor", "vector", "heads"),
        ),
        *_linear(f"{_ATTENTION}out", "C", "A"),
        *layer_norm(f"{_CONV}attention_LayerNorm", f"{_CONV}norm1", "C"),
        *_linear(f"{_CONV}linear1", "I", "C"),
        *_linear(f"{_CONV}linear2", "C", "I"),
        *layer_norm(f"{_CONV}output_LayerNorm", f"{_CONV}norm2", "C"),
    ),
    heads=_HEADS,
    ignored=dict.fromkeys(COUNTERS, COUNTED),
    counters=COUNTERS,
    config={**CONFIG, "embedding_size": "E"},
)
"""The names are ours. Symbols beside BERT's: E embeddings, A channels of all
heads, "near" relative positions; "linearQ" and its like are parts of a projection."""
