"""Text encoders: transformers' DistilBERT against the port of the docs, BERT against paddlenlp's.

Shapes: B samples, N tokens.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

import sot_torch_ref
from align.commands.spec import read_spec
from sot_paddle import registry
from sot_paddle.convert.tables.hf_encoder import renamed_layers
from tests.certificate.ports import port_masked_language
from tests.certificate.scene import Scene

EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "distilbert_pair.py"
BERT_MAP = {
    "bert.encoder": "bert.encoder",
    "bert.encoder.layer.{}": "bert.encoder.layers.{}",
    **renamed_layers("bert."),
}
"""transformers' names -> paddlenlp's."""
BERT_MODULES = {"bert": None, "bert.embeddings.position_embeddings": None}
"""Not compared: records with other fields, a table that one side expands to the batch."""
BERT = {
    "hidden_size": 20,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 28,
    "vocab_size": 60,
    "max_position_embeddings": 16,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "head_dropout": 0.0,
}


def project_pair(name: str, classes: int, options: Mapping[str, Any]) -> tuple[Any, Any]:
    """What builds a model of this project: the reference's, and ours."""
    given = {"num_classes": classes, **options}
    return tuple(
        functools.partial(package.create_model, name, **given)
        for package in (sot_torch_ref, registry)
    )


def tokens(seed: int, vocab: int, lengths: tuple[int, ...]) -> dict[str, np.ndarray]:
    """Padded batches of token numbers with their types and mask, each (B, N)."""
    rng = np.random.default_rng(seed)
    mask = (np.arange(max(lengths))[None] < np.asarray(lengths)[:, None]).astype("int64")
    types = (np.arange(max(lengths))[None] >= np.asarray(lengths)[:, None] // 2).astype("int64")
    return {
        "input_ids": rng.integers(1, vocab, mask.shape) * mask,
        "token_type_ids": types * mask,
        "attention_mask": mask,
    }


def distilbert(seed: int) -> Scene:
    """The example of ``docs/align_your_own.md`` with its own spec, its padding row trained."""
    given = read_spec(EXAMPLE)

    def trained() -> torch.nn.Module:
        model = given.torch_module()
        torch.nn.init.normal_(model.embeddings.word_embeddings.weight, std=0.5)
        return model

    drawn = tokens(seed, 50, (7, 4, 6))
    return Scene(
        trained,
        given.paddle_layer,
        {name: drawn[name] for name in ("input_ids", "attention_mask")},
        weights=given.weights,
    )


def _masked_language() -> torch.nn.Module:
    from transformers import DistilBertConfig, DistilBertForMaskedLM

    sizes = {"vocab_size": 50, "max_position_embeddings": 16, "dim": 24, "n_heads": 3}
    return DistilBertForMaskedLM(DistilBertConfig(**sizes, hidden_dim=40, n_layers=1))


def tied(seed: int) -> Scene:
    """Masked language modelling: a projection tied to the embedding, words that do not count."""
    given = read_spec(EXAMPLE)
    encoder = importlib.import_module("distilbert_paddle").DistilBert
    drawn = tokens(seed, 50, (8, 5))
    chosen = np.arange(8) % 3 == 0  # not half of them: counting the others has to show
    rows = {f"distilbert.{name}": f"encoder.{target}" for name, target in given.weights.items()}
    return Scene(
        _masked_language,
        lambda: port_masked_language.MaskedLanguage(encoder(layers=1), 24),
        {name: drawn[name] for name in ("input_ids", "attention_mask")},
        loss=(_masked_loss, port_masked_language.loss),
        labels=np.where(chosen & (drawn["attention_mask"] > 0), drawn["input_ids"], -100),
        weights={
            **rows,
            "vocab_transform": "transform",
            "vocab_layer_norm": "norm",
            "vocab_projector": "project",
            "vocab_projector.weight": {"to": "project.weight", "transform": "copy"},
        },
    )


def _masked_loss(output: Any, labels: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(output.logits.transpose(1, 2), labels)


def bert(seed: int) -> Scene:
    """BERT with its pooler and classifier: transformers' encoder against paddlenlp's."""
    rng = np.random.default_rng((seed, 1))
    return Scene(
        *project_pair("bert_base", 3, BERT),
        tokens(seed, 60, (9, 5)),
        loss="cross_entropy",
        labels=rng.integers(0, 3, 2),
        weights={"map": BERT_MAP, "modules": BERT_MODULES},
    )
