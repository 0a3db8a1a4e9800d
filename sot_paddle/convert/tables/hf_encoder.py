"""Table: the encoder of BERT and RoBERTa as transformers names it, which many layouts keep.

Symbols: V vocabulary, P positions, T token types, C hidden size, I intermediate size.
Source: specs.md D.5, weight mapping.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from sot_paddle.convert.engine.layout import Row

PREFIX = "bert."
ROBERTA = "roberta."
CONFIG = {
    "vocab_size": "V",
    "max_position_embeddings": "P",
    "type_vocab_size": "T",
    "hidden_size": "C",
    "intermediate_size": "I",
}


def linear(source: str, destination: str, fan_out: str, fan_in: str) -> tuple[Row, Row]:
    """Weight and bias rows of a linear layer, (out, in) in PyTorch."""
    return (
        Row(f"{source}.weight", f"{destination}.weight", "linear", (fan_out, fan_in)),
        Row(f"{source}.bias", f"{destination}.bias", "bias", (fan_out,)),
    )


def layer_norm(source: str, destination: str, width: str = "C") -> tuple[Row, Row]:
    """Scale and shift rows of a LayerNorm; converted TensorFlow checkpoints say gamma and beta."""
    return (
        Row(source + ".weight", destination + ".weight", "norm", (width,), (source + ".gamma",)),
        Row(source + ".bias", destination + ".bias", "norm", (width,), (source + ".beta",)),
    )


def old_norm(row: Row) -> Row:
    """A row whose first alias is the name that is written; the usual one is read as well."""
    source, *aliases = (*row.aliases, row.source)
    return dataclasses.replace(row, source=source, aliases=tuple(aliases))


def encoder(prefix: str) -> tuple[Row, ...]:
    """Rows of an encoder whose names begin with a prefix on both sides."""
    embeddings, torch, paddle = (
        prefix + part for part in ("embeddings.", "encoder.layer.{}.", "encoder.layers.{}.")
    )
    tables = (
        ("word_embeddings.weight", "V"),
        ("position_embeddings.weight", "P"),
        ("token_type_embeddings.weight", "T"),
    )
    return (
        *(Row(embeddings + n, embeddings + n, "embedding", (rows, "C")) for n, rows in tables),
        *layer_norm(embeddings + "LayerNorm", embeddings + "layer_norm"),
        *linear(torch + "attention.self.query", paddle + "self_attn.q_proj", "C", "C"),
        *linear(torch + "attention.self.key", paddle + "self_attn.k_proj", "C", "C"),
        *linear(torch + "attention.self.value", paddle + "self_attn.v_proj", "C", "C"),
        *linear(torch + "attention.output.dense", paddle + "self_attn.out_proj", "C", "C"),
        *layer_norm(torch + "attention.output.LayerNorm", paddle + "norm1"),
        *linear(torch + "intermediate.dense", paddle + "linear1", "I", "C"),
        *linear(torch + "output.dense", paddle + "linear2", "C", "I"),
        *layer_norm(torch + "output.LayerNorm", paddle + "norm2"),
    )


def renamed_layers(prefix: str) -> dict[str, str]:
    """transformers' name of each layer that paddlenlp calls otherwise -> that name."""
    rows = [(row.source, row.destination) for row in encoder(prefix)]
    layers = [tuple(name.rpartition(".")[0] for name in names) for names in rows]
    return {hf_name: paddle_name for hf_name, paddle_name in layers if hf_name != paddle_name}


def ignored(prefix: str) -> dict[str, str]:
    """What the model makes itself -> reason."""
    return {
        f"{prefix}embeddings.position_ids": "a constant 0, 1, 2, ...; the model makes it itself"
    }


def left_out(rows: Iterable[Row], reason: str) -> dict[str, str]:
    """The tensors of some rows, all left out for one reason."""
    return dict.fromkeys((row.source for row in rows), reason)


def other_tasks(model: str) -> dict[str, dict[str, str]]:
    """Class of transformers whose head is not converted -> its tensors -> reason."""
    tasks = (
        ("TokenClassification", "token classification", "classifier.*", "every token"),
        ("MultipleChoice", "multiple choice", "classifier.*", "one choice, not classes"),
        ("QuestionAnswering", "question answering", "qa_outputs.*", "spans"),
    )
    return {
        f"{model}For{name}": {tensors: f"head of {task} ({model}For{name}): it scores {what}"}
        for name, task, tensors, what in tasks
    }
