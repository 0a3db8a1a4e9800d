"""Table: the BERT of "Convolutions and self-attention" as its own code names it.

The code is a fork of transformers 3: BERT's names, with or without ``bert.``, and beside them those
of embeddings that are narrower than the hidden states, of the kernels and of the convolutions.

Symbols beside BERT's: E embeddings, A channels of all heads, "near" relative positions, "heads",
"each" channels of a head; "linearQ" and its like are parts of a projection.

Source: specs.md E; names from the public code, mlpc-ucsd/BERT_Convolutions at 8513d78,
``src/transformers/modeling_bert.py``. No published file was at hand.
"""

from __future__ import annotations

import dataclasses

from sot_paddle.convert.engine.layout import Layout, Row
from sot_paddle.convert.tables import bert_family
from sot_paddle.convert.tables.hf_encoder import CONFIG, PREFIX, layer_norm
from sot_paddle.convert.tables.hf_encoder import linear as _linear
from sot_paddle.convert.tables.vision_rows import conv

_THEIRS, _OURS = f"{PREFIX}embeddings", "conv_bert.embeddings"
_LAYER, _OUR_LAYER = f"{PREFIX}encoder.layer.{{}}.", "conv_bert.layers.{}."
_SELF, _OUR_SELF = f"{_LAYER}attention.self.", f"{_OUR_LAYER}self_attn."
_FACTOR = ("1", "heads", "1", "1")
_PLACES = "relative places, which follow from the kernel's reach; the model makes them itself"


def _option(name: str, *rows: Row, beside: tuple[str, bool] | None = None) -> tuple[Row, ...]:
    """Tensors of an option: all of them in every layer, or none."""
    return tuple(dataclasses.replace(row, together=name, beside=beside) for row in rows)


def _projection(name: str, symbol: str) -> tuple[Row, ...]:
    """Queries, keys or values: a linear layer, a convolution, or half of each."""
    source, destination = _SELF + name, _OUR_SELF + name
    convolved = f"{destination}.conv.weight"
    plain = _linear(source, f"{destination}.linear", f"linear{symbol}", "C")
    half = _linear(f"{source}_linear", f"{destination}.linear", f"linear{symbol}", "C")
    pointwise = _linear(f"{source}_pointwise", f"{destination}.pointwise", f"point{symbol}", "A")
    sizes = (f"conv{symbol}", f"group{symbol}", f"width{symbol}")
    return (
        *_option("" if name == "value" else name, *plain, beside=(convolved, False)),
        *_option(f"half of {name}", *half, beside=(convolved, True)),
        *_option(f"depth of {name}", *pointwise),
        *_option(f"convolution of {name}", *conv(f"{source}_conv", f"{destination}.conv", sizes)),
    )


def _term(name: str, *shape: str) -> tuple[Row, ...]:
    return _option(name, Row(f"{_SELF}{name}_param", f"{_OUR_SELF}{name}", "vector", shape))


def _embedding(name: str, rows: str) -> Row:
    end = f".{name}_embeddings.weight"
    return Row(_THEIRS + end, _OURS + end, "embedding", (rows, "E"))


_KERNELS = (
    *_term("convfixed", "1", "heads", "1", "near"),
    *_term("convq", "each", "near"),
    *_term("convk", "each", "near"),
    *_option(
        "convolution",
        *conv(f"{_SELF}convolution", f"{_OUR_SELF}convolution", ("A", "1", "near")),
        Row(f"{_SELF}convolution_scalar", f"{_OUR_SELF}factor", "head_factor", _FACTOR),
    ),
    *_option(
        "convbert",
        *conv(f"{_SELF}convbert_key_depthwise", f"{_OUR_SELF}span.conv", ("C", "1", "9")),
        *_linear(f"{_SELF}convbert_key_pointwise", f"{_OUR_SELF}span.pointwise", "linearQ", "C"),
        *_linear(f"{_SELF}lightweight_kernel", f"{_OUR_SELF}span.kernel", "9*half", "linearQ"),
    ),
)

LAYOUT = Layout(
    description='"Convolutions and self-attention": its BERT, and the head of classification',
    family="conv_bert",
    written_as="conv_bert_original",
    encoder=(
        _embedding("word", "V"),
        *_option("positions", _embedding("position", "P")),
        _embedding("token_type", "T"),
        *layer_norm(f"{_THEIRS}.LayerNorm", f"{_OURS}.layer_norm", "E"),
        *_option("project", *_linear(f"{_THEIRS}_project", f"{_OURS}.projection", "C", "E")),
        *_projection("query", "Q"),
        *_projection("key", "Q"),
        *_projection("value", "A"),
        *_KERNELS,
        *_linear(f"{_LAYER}attention.output.dense", f"{_OUR_SELF}out", "C", "A"),
        *layer_norm(f"{_LAYER}attention.output.LayerNorm", f"{_OUR_LAYER}norm1"),
        *_linear(f"{_LAYER}intermediate.dense", f"{_OUR_LAYER}linear1", "I", "C"),
        *_linear(f"{_LAYER}output.dense", f"{_OUR_LAYER}linear2", "C", "I"),
        *layer_norm(f"{_LAYER}output.LayerNorm", f"{_OUR_LAYER}norm2"),
    ),
    heads=bert_family.BERT.heads,
    ignored={**bert_family.BERT.ignored, f"{_SELF}relative_positions_mat": _PLACES},
    foreign=bert_family.BERT.foreign,
    companions=bert_family.BERT.companions,
    headless=bert_family.BERT.headless,
    optional_prefix=PREFIX,
    config={**CONFIG, "embedding_size": "E"},
)
