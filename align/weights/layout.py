"""The vocabulary of the conversion tables: rows, heads, layouts and model names. Pure data.

Templates are full tensor names with at most one ``{}``, the layer index. Shapes are PyTorch's, in
symbols: ``"C"`` must be the same number wherever it stands, ``"q*k"`` is a product and ``"1"``
is one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Row:
    """One kind of tensor on both sides.

    Args:
        source: PyTorch template, written when converting back.
        destination: Paddle template.
        kind: key of `align.weights.transforms.KINDS`.
        shape: PyTorch axes as symbols.
        aliases: other PyTorch templates that are read as well (old spellings).
        optional: exists only under some options, so its absence is not reported.
        part: (index, count) when `destination` is one of `count` equal pieces of `source` along
            its first axis (fused projections).
    """

    source: str
    destination: str
    kind: str
    shape: tuple[str, ...]
    aliases: tuple[str, ...] = ()
    optional: bool = False
    part: tuple[int, int] | None = None


@dataclass(frozen=True)
class HeadTable:
    """The tensors of one task head.

    Args:
        rows: its tensors.
        config: config.json key -> symbol, for sizes of this head.
    """

    rows: tuple[Row, ...]
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Layout:
    """A named source layout: everything the engine must know about it.

    Args:
        description: one line for ``--help``.
        encoder: rows that must all be present.
        heads: head name -> its rows.
        ignored: PyTorch template (a trailing ``*`` matches the rest) -> reason to leave it out.
        headless: the same, for a model whose head this layout does not know; empty when such a
            model is refused.
        counters: PyTorch template of an int64 scalar that Paddle does not have -> Paddle tensor
            beside which it is written, as 0, when converting back.
        optional_prefix: may be missing from all source names.
        config: config.json key -> symbol, for sizes of the encoder.
        depth_key: config.json key of the number of layers.
        containers: keys under which a torch file may hold the state dict.
    """

    description: str
    encoder: tuple[Row, ...]
    heads: Mapping[str, HeadTable]
    ignored: Mapping[str, str] = field(default_factory=dict)
    headless: Mapping[str, str] = field(default_factory=dict)
    counters: Mapping[str, str] = field(default_factory=dict)
    optional_prefix: str = ""
    config: Mapping[str, str] = field(default_factory=dict)
    depth_key: str = "num_hidden_layers"
    containers: tuple[str, ...] = ("state_dict", "model")


@dataclass(frozen=True)
class ModelHeads:
    """Which heads a registry name can have.

    Args:
        default: the head when nothing in the file tells.
        accepted: heads that its overrides can give it.
    """

    default: str
    accepted: tuple[str, ...]


HEAD_SIGNATURES: Mapping[str, tuple[str, ...]] = {
    "pooler": ("head.dense.weight", "head.dense.bias"),
    "mgcrp_qk": ("head.pooling.q_proj.weight", "head.pooling.k_proj.weight"),
    "mgcrp": ("head.pooling.wr.weight",),
    "gcp": ("head.pooling.dr.weight", "head.pooling.dr.bias"),
    "fc": ("head.proj.weight", "head.proj.bias"),
}
"""Head name -> Paddle names, any of which proves that a file holds this head."""

WORD_SCORES = ("head.word_fc.weight", "head.word_fc.bias")
"""Paddle names that every head with word tokens has; alone they mean average pooling (gap)."""

_PLAIN = ModelHeads("pooler", ("pooler", "gap", "gcp", "fc"))
_SECOND_ORDER = ModelHeads("mgcrp_qk", ("mgcrp_qk", "mgcrp", "gap", "gcp", "fc"))

MODELS: Mapping[str, ModelHeads] = {
    "bert_base": _PLAIN,
    "bert_large": _PLAIN,
    "bert_base_mgcrp": _SECOND_ORDER,
    "bert_large_mgcrp": _SECOND_ORDER,
}
"""Registry name -> heads. Depth and sizes come from the tensors, so base and large agree here."""
