"""Tables: OpenAI's GPT-1 as transformers names it, with or without ``transformer.`` and a head.

Symbols: V vocabulary, P positions, C hidden size, K classes. transformers' Conv1D stores its weight
as (in, out), which is Paddle's order.
"""

from __future__ import annotations

from sot_paddle.convert.engine.layout import Layout, Row
from sot_paddle.convert.tables.vision_rows import layer_norm

PREFIX = "transformer."
CONFIG = {"vocab_size": "V", "n_positions": "P", "n_embd": "C"}
DEPTH = "n_layer"

_MASK = "the causal mask; the model makes it itself"
_LANGUAGE = "head of the language model, its weight that of the embedding: no use for a classifier"
_REPLACED = "the second-order head replaces GPT's own"


def encoder(prefix: str) -> tuple[Row, ...]:
    """Rows of the encoder; its names on our side begin with ``gpt.``."""
    torch, paddle = prefix + "h.{}.", "gpt.layers.{}."

    def conv1d(source: str, destination: str, fan_in: str, fan_out: str) -> tuple[Row, Row]:
        source, destination = torch + source, paddle + destination
        return (
            Row(f"{source}.weight", f"{destination}.weight", "conv1d", (fan_in, fan_out)),
            Row(f"{source}.bias", f"{destination}.bias", "bias", (fan_out,)),
        )

    words = (f"{prefix}tokens_embed.weight", "gpt.word_embeddings.weight")
    positions = (f"{prefix}positions_embed.weight", "gpt.position_embeddings.weight")
    return (
        Row(*words, "embedding", ("V", "C")),
        Row(*positions, "embedding", ("P", "C")),
        *conv1d("attn.c_attn", "attn.qkv", "C", "3*C"),
        *conv1d("attn.c_proj", "attn.proj", "C", "C"),
        *layer_norm(torch + "ln_1", paddle + "norm1", "C"),
        *conv1d("mlp.c_fc", "mlp.fc1", "C", "4*C"),
        *conv1d("mlp.c_proj", "mlp.fc2", "4*C", "C"),
        *layer_norm(torch + "ln_2", paddle + "norm2", "C"),
    )


def ignored(prefix: str) -> dict[str, str]:
    """What the model makes itself -> reason."""
    return {
        prefix + "h.{}.attn.bias": _MASK,
        prefix + "position_ids": "a constant 0, 1, 2, ...; the model makes it itself",
    }


_SCORE = Row("score.weight", "head.cls_fc.weight", "linear", ("K", "C"))

LAYOUT = Layout(
    description=(
        "OpenAI's GPT-1 of transformers, and the head of OpenAIGPTForSequenceClassification"
    ),
    family="gpt",
    encoder=encoder(PREFIX),
    heads={"score": (_SCORE,)},
    ignored={**ignored(PREFIX), "lm_head.*": _LANGUAGE, "multiple_choice_head.*": _LANGUAGE},
    headless={"score.weight": _REPLACED},
    optional_prefix=PREFIX,
    config=CONFIG,
    depth_key=DEPTH,
)
