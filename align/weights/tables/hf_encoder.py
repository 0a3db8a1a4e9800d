"""Table: BERT's encoder as transformers names it, shared by every layout that keeps those names.

Symbols: V vocabulary, P positions, T token types, C hidden size, I intermediate size.
Source: specs.md D.5, weight mapping.
"""

from __future__ import annotations

from align.weights.engine.layout import Row

PREFIX = "bert."
CONFIG = {
    "vocab_size": "V",
    "max_position_embeddings": "P",
    "type_vocab_size": "T",
    "hidden_size": "C",
    "intermediate_size": "I",
}

_EMBEDDINGS = "bert.embeddings."
_TORCH = "bert.encoder.layer.{}."
_PADDLE = "bert.encoder.layers.{}."


def linear(source: str, destination: str, fan_out: str, fan_in: str) -> tuple[Row, Row]:
    """Weight and bias rows of a linear layer, (out, in) in PyTorch."""
    return (
        Row(source + ".weight", destination + ".weight", "linear", (fan_out, fan_in)),
        Row(source + ".bias", destination + ".bias", "bias", (fan_out,)),
    )


def layer_norm(source: str, destination: str) -> tuple[Row, Row]:
    """Scale and shift rows of a LayerNorm; converted TensorFlow checkpoints say gamma and beta."""
    return (
        Row(source + ".weight", destination + ".weight", "norm", ("C",), (source + ".gamma",)),
        Row(source + ".bias", destination + ".bias", "norm", ("C",), (source + ".beta",)),
    )


ENCODER = (
    *(
        Row(_EMBEDDINGS + name, _EMBEDDINGS + name, "embedding", (rows, "C"))
        for name, rows in (
            ("word_embeddings.weight", "V"),
            ("position_embeddings.weight", "P"),
            ("token_type_embeddings.weight", "T"),
        )
    ),
    *layer_norm(_EMBEDDINGS + "LayerNorm", _EMBEDDINGS + "layer_norm"),
    *linear(_TORCH + "attention.self.query", _PADDLE + "self_attn.q_proj", "C", "C"),
    *linear(_TORCH + "attention.self.key", _PADDLE + "self_attn.k_proj", "C", "C"),
    *linear(_TORCH + "attention.self.value", _PADDLE + "self_attn.v_proj", "C", "C"),
    *linear(_TORCH + "attention.output.dense", _PADDLE + "self_attn.out_proj", "C", "C"),
    *layer_norm(_TORCH + "attention.output.LayerNorm", _PADDLE + "norm1"),
    *linear(_TORCH + "intermediate.dense", _PADDLE + "linear1", "I", "C"),
    *linear(_TORCH + "output.dense", _PADDLE + "linear2", "C", "I"),
    *layer_norm(_TORCH + "output.LayerNorm", _PADDLE + "norm2"),
)

IGNORED = {"bert.embeddings.position_ids": "a constant 0, 1, 2, ...; the model makes it itself"}
