"""Table: this project's PyTorch reference: transformers' encoder names, the head's own names.

Symbols of the heads: K classes, L width of the class tokens of layers, R that of the word
representation, D that of the class token, q and k of the single-head MGCrP, W = 2 * heads * wr_dim,
w = wr_dim, c reduced width of GCP, d width of the text release's covariance.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping

from sot_paddle.config import WORD_POOLINGS
from sot_paddle.convert.engine.layout import Layout, Row
from sot_paddle.convert.tables import conv_bert_original, gpt_hf, vision_rows
from sot_paddle.convert.tables.hf_encoder import CONFIG, PREFIX, ROBERTA, encoder, ignored, linear
from sot_paddle.convert.tables.vision_rows import batch_norm


def _same(name: str, kind: str, *shape: str, optional: bool = False) -> Row:
    """A tensor with one name on both sides."""
    return Row(name, name, kind, shape, together=name if optional else "")


def _linear(name: str, fan_out: str, fan_in: str) -> tuple[Row, Row]:
    return linear(name, name, fan_out, fan_in)


def _branch(name: str, width: str, channels: str) -> tuple[Row, ...]:
    """Projection and BatchNorm of one branch of the single-head MGCrP."""
    return (
        _same(f"head.pooling.{name}_proj.weight", "conv1x1_to_linear", width, channels, "1", "1"),
        *batch_norm(f"head.pooling.{name}_norm", f"head.pooling.{name}_norm", width),
    )


def heads(width: str, *, class_token: bool) -> dict[str, tuple[Row, ...]]:
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
    }
    tables |= {name: scores for name in WORD_POOLINGS if name not in tables}  # without tensors
    if class_token:
        tables["pooler"] = (*_linear("head.dense", width, width), *of_class)
        tables["fc"] = (*_linear("head.proj", "D", width), *_linear("head.cls_fc", "K", "D"))
        tables["none"] = of_class
        tables["layers"] = _linear("head.cls_fc", "K", "L")
    return tables


def released(rows: Iterable[Row], names: Mapping[str, str]) -> tuple[Row, ...]:
    """Rows of `heads` in a release whose names begin otherwise: our beginning -> theirs."""
    renamed = []
    for row in rows:
        ours = next(start for start in names if row.source.startswith(start))
        source = names[ours] + row.source.removeprefix(ours)
        renamed.append(dataclasses.replace(row, source=source))
    return tuple(renamed)


_HEADS = {name: rows for name, rows in heads("C", class_token=True).items() if name != "none"}
_SCORE = (
    _same("head.cls_fc.weight", "linear", "K", "C"),
    _same("head.cls_fc.bias", "bias", "K", optional=True),
)
_NORMS = {
    ".layer_norm.": ".LayerNorm.",
    ".norm1.": ".attention_LayerNorm.",
    ".norm2.": ".output_LayerNorm.",
}


def _named_as_here(row: Row) -> Row:
    """A row of the original's table: its tensor has the name of our side, but for the norms."""
    name = row.destination
    for paddle_norm, torch_norm in _NORMS.items():
        name = name.replace(paddle_norm, torch_norm)
    row = dataclasses.replace(row, source=name, aliases=())
    if row.kind == "head_factor":  # one number for each head here, too
        return dataclasses.replace(row, kind="vector", shape=("heads",))
    return row


_layout = functools.partial(Layout, "this project's PyTorch reference, sot_torch_ref")
_text = functools.partial(_layout, heads=_HEADS)

LAYOUTS = (
    _text(family="bert", encoder=encoder(PREFIX), ignored=ignored(PREFIX), config=CONFIG),
    _text(family="roberta", encoder=encoder(ROBERTA), ignored=ignored(ROBERTA), config=CONFIG),
    _text(
        family="gpt",
        encoder=gpt_hf.encoder("gpt."),
        heads={**_HEADS, "score": _SCORE},
        ignored=gpt_hf.ignored("gpt."),
        config=gpt_hf.CONFIG,
        depth_key=gpt_hf.DEPTH,
    ),
    _text(  # which tensors stand together, and their sizes, are as in the original's table
        family="conv_bert",
        encoder=tuple(_named_as_here(row) for row in conv_bert_original.LAYOUT.encoder),
        config=conv_bert_original.LAYOUT.config,
    ),
    _layout(
        family="vit",
        encoder=vision_rows.VIT,
        embeds=vision_rows.own_embeds("C", patch_norm=False),
        heads=heads("C", class_token=True),
    ),
    _layout(
        family="swin",
        encoder=vision_rows.swin("stages.{}", 0),
        embeds=vision_rows.own_embeds("C0", patch_norm=True),
        heads=heads("C{last}", class_token=False),
    ),
)
"""One table for each family of backbones."""
