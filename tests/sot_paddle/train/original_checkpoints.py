"""Tiny random checkpoints as their authors released them; no tests here."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers

import sot_torch_ref  # noqa: F401  (makes transformers importable beside a CPU build of torch)
from tests.parity.vocabularies import train_vocabulary
from tests.sot_paddle.train import tiny_run

_SIZES = {
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "num_labels": 2,
}


@dataclass(frozen=True)
class Original:
    """A checkpoint of an architecture.

    Attributes:
        architecture: value of ``--model_type``.
        layout: of the conversion.
        model: registry name.
        write: makes the folder.
        left_out: what the names of tensors begin with that are not converted.
        loads: whether transformers loads what is converted back.
    """

    architecture: str
    layout: str
    model: str
    write: Callable[[Path], Path]
    left_out: str = "(nothing)"
    loads: bool = True


def _shaken(model: torch.nn.Module) -> torch.nn.Module:
    """Nothing stays at the 0 and 1 of its start."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return model


def _texts() -> list[str]:
    return [tiny_run.sentence(index) for index in range(40)]


def _bert(folder: Path) -> Path:
    tiny_run.write_model(folder)
    sizes = json.loads((folder / "config.json").read_text("utf-8"))
    config = transformers.BertConfig(**sizes, num_labels=3)
    _shaken(transformers.BertForSequenceClassification(config)).save_pretrained(folder)
    return folder


def _roberta(folder: Path) -> Path:
    folder.mkdir(parents=True)
    train_vocabulary(folder, "byte_bpe", _texts())
    vocabulary: Mapping[str, Any] = json.loads((folder / "vocab.json").read_text("utf-8"))
    config = transformers.RobertaConfig(
        **_SIZES,
        vocab_size=len(vocabulary),
        max_position_embeddings=34,
        type_vocab_size=1,
        layer_norm_eps=1e-5,
    )
    _shaken(transformers.RobertaForSequenceClassification(config)).save_pretrained(folder)
    return folder


def _spanbert(folder: Path) -> Path:
    """Encoder alone, as released, with a head of the pre-training."""
    tiny_run.write_model(folder)
    config = json.loads((folder / "config.json").read_text("utf-8"))
    del config["model_type"]  # the released one has none
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    sizes = {
        name: value for name, value in config.items() if name in transformers.BertConfig().to_dict()
    }
    model = _shaken(
        transformers.BertModel(transformers.BertConfig(**sizes), add_pooling_layer=False)
    )
    state = {
        "decoder.bert."
        + name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): tensor
        for name, tensor in model.state_dict().items()
    }
    state["decoder.cls.pair_target_predictions.bias"] = torch.zeros(3)
    torch.save(state, folder / "pytorch_model.bin")
    return folder


def _gpt(folder: Path) -> Path:
    folder.mkdir(parents=True)
    train_vocabulary(folder, "word_bpe", _texts())
    vocabulary: Mapping[str, Any] = json.loads((folder / "vocab.json").read_text("utf-8"))
    config = transformers.OpenAIGPTConfig(
        vocab_size=len(vocabulary),
        **{"n_embd": 12, "n_layer": 2, "n_head": 3, "n_positions": 34},
        num_labels=2,
        pad_token_id=0,
    )
    _shaken(transformers.OpenAIGPTForSequenceClassification(config)).save_pretrained(folder)
    return folder


def _conv_bert(folder: Path) -> Path:
    """The reference's encoder: the published code's own checkpoints were never released."""
    folder.mkdir(parents=True)
    train_vocabulary(folder, "sentencepiece", _texts())
    tokenizer = transformers.AlbertTokenizer(str(folder / "spm.model"))
    config = {
        **{name: size for name, size in _SIZES.items() if name != "num_labels"},
        "vocab_size": len(tokenizer),
        "pad_token_id": tokenizer.pad_token_id,
        "max_position_embeddings": 34,
        "embedding_size": 9,
        "attention_kernel": "qk_convfixed_convq_convk 2",
        "value_forward": "convolution_depth 1 1",
    }
    model = _shaken(sot_torch_ref.create_model("conv_bert_base", 2, **config))
    state = {n: a for n, a in model.state_dict().items() if n.startswith("conv_bert.")}
    torch.save(state, folder / "pytorch_model.bin")
    stated = {"model_type": "conv_bert", **config}
    (folder / "config.json").write_text(json.dumps(stated), encoding="utf-8")
    return folder


BERT = Original("bert", "bert_hf", "bert_base", _bert)
ORIGINALS = (
    Original("conv-bert", "sot_torch_ref", "conv_bert_base", _conv_bert, loads=False),
    Original("openai-gpt", "gpt_hf", "openai_gpt", _gpt),
    Original("roberta", "roberta_hf", "roberta_base", _roberta),
    Original(
        *("spanbert", "spanbert_original", "spanbert_base", _spanbert),
        left_out="decoder.cls.",
        loads=False,
    ),
)
