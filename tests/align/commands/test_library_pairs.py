"""Pairs of other libraries' models, as a user compares them: right ones pass, one fault is found.

Sizes are small and all different; weights are random.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
import torch
from paddle import nn
from torch.nn.utils import parametrizations

import align
from align.frameworks import on_paddle, on_torch
from align.match import mapping
from align.match.draft import propose
from align.match.name_table import Table
from align.match.paired_names import SideNames, pair_names
from tests.align.small_pairs import model_of

import sot_torch_ref  # noqa: F401  isort: skip (timm and transformers beside a CPU build of torch)
import timm  # isort: skip
import torchvision  # isort: skip
import transformers  # isort: skip

import paddlenlp.transformers as paddlenlp

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings(r"ignore:[\s\S]*swiglu"),  # of paddlenlp 3.0, 2026-11-26
]

BATCH, LENGTH, VOCABULARY, DIM, HEADS, INNER, CLASSES = 2, 5, 37, 24, 4, 28, 7


def sequence(rng: np.random.Generator) -> np.ndarray:
    return rng.normal(size=(BATCH, LENGTH, DIM))


def three_sequences(rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    return tuple(sequence(rng) for _ in range(3))


def tokens(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {"input_ids": rng.integers(2, VOCABULARY, (BATCH, LENGTH))}


def image(size: int) -> Callable[[np.random.Generator], np.ndarray]:
    return lambda rng: rng.normal(size=(BATCH, 3, size, size))


def tagger(f: Any) -> Any:
    """A recurrent layer inside a user's model."""
    options = {"batch_first": True} if f is torch else {}
    rnn = f.nn.GRU(DIM, INNER, dropout=0.3, num_layers=2, **options)
    out = f.nn.Linear(INNER, CLASSES)
    return model_of(f, lambda model, x: model.out(model.rnn(x)[0]), rnn=rnn, out=out)


def both(
    kind: str, shared: dict[str, Any], theirs: Any = None, ours: Any = None
) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """transformers' and paddlenlp's model of one name, with the sizes that each calls its own."""
    family = re.split("Model$|For[A-Z]", kind)[0]

    def build(library: Any, sizes: dict[str, Any]) -> Any:
        config = getattr(library, f"{family}Config")
        return getattr(library, kind)(config(**{"vocab_size": VOCABULARY, **shared, **sizes}))

    return lambda: build(transformers, theirs or {}), lambda: build(paddlenlp, ours or {})


def text(kind: str, **more: Any) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """A model like BERT of both libraries."""
    sizes = {
        "hidden_size": DIM,
        "num_hidden_layers": 2,
        "num_attention_heads": HEADS,
        "intermediate_size": INNER,
        "max_position_embeddings": 16,
        "type_vocab_size": 3,
        "pad_token_id": 1,
        "hidden_act": "gelu",  # ALBERT's default differs: GELU by tanh, by erf in paddlenlp
    }
    return both(kind, {**sizes, **more})


def gpt2() -> tuple[Callable[[], Any], Callable[[], Any]]:
    theirs = {"n_embd": DIM, "n_layer": 2, "n_head": HEADS, "n_positions": 16, "n_inner": INNER}
    ours = {"hidden_size": DIM, "num_hidden_layers": 2, "num_attention_heads": HEADS}
    more = {"intermediate_size": INNER, "max_position_embeddings": 16}
    return (
        lambda: transformers.GPT2Model(transformers.GPT2Config(VOCABULARY, **theirs)),
        lambda: paddlenlp.GPTModel(paddlenlp.GPTConfig(vocab_size=VOCABULARY, **ours, **more)),
    )


def qwen2() -> tuple[Callable[[], Any], Callable[[], Any]]:
    sizes = {"hidden_size": DIM, "intermediate_size": INNER, "max_position_embeddings": 16}
    sizes |= {"num_hidden_layers": 2, "num_attention_heads": HEADS, "num_key_value_heads": 2}
    return both("Qwen2ForCausalLM", sizes)


def seq2seq(kind: str, **more: Any) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """A model like BART of both libraries."""
    sides = ("encoder", "decoder")
    sizes = {"d_model": DIM, "max_position_embeddings": 16}
    sizes |= {f"{side}_attention_heads": HEADS for side in sides}
    sizes |= {f"{side}_ffn_dim": INNER for side in sides}
    sizes |= {f"{prefix}{side}_layers": 2 for side in sides for prefix in ("", "num_")}
    return both(kind, {**sizes, **more})


def clip() -> tuple[Callable[[], Any], Callable[[], Any]]:
    sizes = {"hidden_size": DIM, "intermediate_size": INNER, "num_hidden_layers": 2}
    sizes |= {"num_attention_heads": HEADS, "image_size": 8, "patch_size": 4}
    return both("CLIPVisionModel", sizes)


@dataclass(frozen=True)
class LibraryPair:
    """A pair and its fault.

    Args:
        models: functions that build both sides.
        inputs: from a generator.
        place: Paddle layer that the fault is planted in.
        table: word in the note about the built-in table, "" where names need none.
        outputs, weights, dtype: as `align.compare` takes them.
    """

    models: tuple[Callable[[], Any], Callable[[], Any]]
    inputs: Callable[[np.random.Generator], Any]
    place: str
    table: str = ""
    outputs: Any = None
    weights: Any = None
    dtype: str = "float64"


PAIRS = {
    "lstm": LibraryPair(
        (
            lambda: torch.nn.LSTM(DIM, INNER, 2, batch_first=True, bidirectional=True),
            lambda: nn.LSTM(DIM, INNER, 2, direction="bidirect"),
        ),
        sequence,
        "(model)",
    ),
    "gru_in_a_model": LibraryPair((lambda: tagger(torch), lambda: tagger(paddle)), sequence, "rnn"),
    "transformer_layer": LibraryPair(
        (
            lambda: torch.nn.TransformerEncoderLayer(DIM, HEADS, INNER, batch_first=True),
            lambda: nn.TransformerEncoderLayer(DIM, HEADS, INNER),
        ),
        sequence,
        "norm1",
    ),
    "attention": LibraryPair(
        (
            lambda: torch.nn.MultiheadAttention(DIM, HEADS, batch_first=True),
            lambda: nn.MultiHeadAttention(DIM, HEADS),
        ),
        three_sequences,
        "(model)",
        outputs=0,
    ),
    "transformer": LibraryPair(
        (
            lambda: torch.nn.Transformer(DIM, HEADS, 1, 2, INNER, batch_first=True),
            lambda: nn.Transformer(DIM, HEADS, 1, 2, INNER),
        ),
        lambda rng: (sequence(rng), sequence(rng)),
        "decoder.layers.1.norm2",
        "TransformerDecoder",
    ),
    "parametrized": LibraryPair(
        (
            lambda: torch.nn.Sequential(
                parametrizations.weight_norm(torch.nn.Linear(DIM, INNER)),
                parametrizations.spectral_norm(torch.nn.Linear(INNER, CLASSES)),
            ),
            lambda: nn.Sequential(
                nn.utils.weight_norm(nn.Linear(DIM, INNER), dim=1),
                nn.utils.spectral_norm(nn.Linear(INNER, CLASSES)),
            ),
        ),
        sequence,
        "1",
    ),
    "bert": LibraryPair(
        text("BertForSequenceClassification"), tokens, "bert.encoder.layers.1.norm1", "BERT"
    ),
    "roberta": LibraryPair(text("RobertaModel"), tokens, "encoder.layers.0.linear2", "RoBERTa"),
    "ernie": LibraryPair(text("ErnieForMaskedLM"), tokens, "ernie.embeddings.layer_norm", "ERNIE"),
    "albert": LibraryPair(
        text("AlbertModel", embedding_size=20), tokens, "embeddings.layer_norm", "ALBERT"
    ),
    "gpt2": LibraryPair(gpt2(), tokens, "decoder.norm", "GPT-2", ("last_hidden_state", None)),
    "qwen2": LibraryPair(
        qwen2(), tokens, "qwen2.layers.1.post_attention_layernorm", "Qwen2", ("logits", 0)
    ),
    "bart": LibraryPair(
        seq2seq("BartModel"),
        lambda rng: {**tokens(rng), "decoder_input_ids": rng.integers(3, VOCABULARY, (BATCH, 4))},
        "decoder.decoder.layers.0.norm2",
        "BART",
        ("last_hidden_state", 0),
    ),
    "clip": LibraryPair(
        clip(),
        lambda rng: {"pixel_values": image(8)(rng)},
        "vision_model.ln_pre",
        "CLIP",
        ("pooler_output", 1),
    ),
    "timm_resnet18": LibraryPair(
        (
            lambda: timm.create_model("resnet18", num_classes=CLASSES),
            lambda: paddle.vision.models.resnet18(num_classes=CLASSES),
        ),
        image(24),
        "layer2.0.bn1",
    ),
    "torchvision_mobilenet_v2": LibraryPair(
        (
            lambda: torchvision.models.mobilenet_v2(num_classes=CLASSES),
            lambda: paddle.vision.models.mobilenet_v2(num_classes=CLASSES),
        ),
        image(24),
        "features.3.conv.1.1",
    ),
    "timm_mobilenetv2": LibraryPair(
        (
            lambda: timm.create_model("mobilenetv2_100", num_classes=CLASSES),
            lambda: paddle.vision.models.mobilenet_v2(num_classes=CLASSES),
        ),
        image(24),
        "features.3.conv.2",
        "mobilenetv2",
    ),
}


SIZES = {
    "hidden_size": DIM,
    "num_hidden_layers": 1,
    "num_attention_heads": HEADS,
    "intermediate_size": INNER,
    "max_position_embeddings": 16,
}
TYPES = {**SIZES, "type_vocab_size": 3}
XLNET = {"d_model": DIM, "n_layer": 1, "n_head": HEADS, "d_inner": INNER}
LAST = ("last_hidden_state", 0)


def in_two_axes(weight: np.ndarray) -> np.ndarray:
    return weight.reshape(len(weight), -1)


FURTHER = {
    "distilbert": LibraryPair(
        both(
            "DistilBertModel",
            {"max_position_embeddings": 16},
            {"dim": DIM, "n_heads": HEADS, "n_layers": 1, "hidden_dim": INNER},
            SIZES,
        ),
        tokens,
        "encoder.layers.0.norm2",
        "DistilBERT",
    ),
    "xlnet": LibraryPair(
        both("XLNetModel", XLNET, {}, {"d_head": DIM // HEADS}),
        tokens,
        "layer.0.ff.layer_norm",
        outputs=LAST,
        weights={
            f"layer.{{}}.rel_attn.{name}": (f"layer.{{}}.rel_attn.{name}", in_two_axes)
            for name in "qkvor"
        },
        dtype="float32",
    ),
    "opt": LibraryPair(
        both("OPTModel", {**SIZES, "word_embed_proj_dim": DIM}, {"ffn_dim": INNER}),
        tokens,
        "decoder.final_layer_norm",
        outputs=("last_hidden_state", None),
        weights="draft",
    ),
    "convbert": LibraryPair(
        both("ConvBertModel", {**TYPES, "embedding_size": 20}),
        tokens,
        "encoder.layers.0.norm2",
        outputs=LAST,
        weights="draft",
    ),
    "clip_text": LibraryPair(
        both("CLIPTextModel", {**SIZES, "bos_token_id": 0, "eos_token_id": 1}),
        tokens,
        "text_model.ln_final",
        "CLIP",
        LAST,
    ),
    "nystromformer": LibraryPair(
        both(
            "NystromformerModel",
            {**TYPES, "num_landmarks": 4, "segment_means_seq_len": 8, "conv_kernel_size": 3},
        ),
        lambda rng: {"input_ids": rng.integers(2, VOCABULARY, (BATCH, 8))},
        "encoder.layer.0.output.LayerNorm",
        outputs=LAST,
        weights="draft",
    ),
    "megatron_bert": LibraryPair(
        both("MegatronBertModel", TYPES), tokens, "encoder.layer_norm", weights="draft"
    ),
    "t5": LibraryPair(
        both(
            "T5Model",
            {"d_model": DIM, "d_kv": DIM // HEADS, "d_ff": INNER, "num_layers": 1},
            *[{"num_heads": HEADS}] * 2,
        ),
        lambda rng: {
            **tokens(rng),
            "attention_mask": np.array([[1] * LENGTH, [1, 1, 1, 0, 0]]),
            "decoder_input_ids": rng.integers(3, VOCABULARY, (BATCH, 4)),
        },
        "decoder.block.0.layer.2.DenseReluDense.wo",
        outputs=LAST,
    ),
    "pegasus": LibraryPair(
        seq2seq("PegasusModel", activation_function="gelu", scale_embedding=True),
        lambda rng: {**tokens(rng), "decoder_input_ids": rng.integers(3, VOCABULARY, (BATCH, 4))},
        "decoder.decoder.layers.0.norm2",
        outputs=LAST,
        weights="draft",
    ),
    "roformer": LibraryPair(
        both("RoFormerModel", {**TYPES, "embedding_size": DIM}),
        tokens,
        "encoder.layers.0.norm1",
        outputs=LAST,
        weights="draft",
    ),
    "torchvision_bottleneck": LibraryPair(
        (
            lambda: torchvision.models.resnet.Bottleneck(16, 4),
            lambda: paddle.vision.models.resnet.BottleneckBlock(16, 4),
        ),
        lambda rng: rng.normal(size=(BATCH, 16, 5, 5)),
        "bn3",
    ),
    "torchvision_shufflenet_block": LibraryPair(
        (
            lambda: torchvision.models.shufflenetv2.InvertedResidual(8, 8, 1),
            lambda: paddle.vision.models.shufflenetv2.InvertedResidual(8, 8, 1, nn.ReLU),
        ),
        lambda rng: rng.normal(size=(BATCH, 8, 5, 5)),
        "_conv_linear.1",
        weights="draft",
    ),
    "torchvision_conv_norm": LibraryPair(
        (
            lambda: torchvision.ops.Conv2dNormActivation(4, 6),
            lambda: paddle.vision.ops.ConvNormActivation(4, 6),
        ),
        lambda rng: rng.normal(size=(BATCH, 4, 5, 5)),
        "1",
    ),
}
"""Further pairs: names from a table, from a draft, or equal; 1 layer or block each."""


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch) -> None:
    """A draft goes to the working folder when `out` is not given."""
    monkeypatch.chdir(tmp_path)


def compare(pair: LibraryPair, ours: Callable[[], Any], **options: Any) -> Any:
    inputs = pair.inputs(np.random.default_rng(0))
    kept = {"outputs": pair.outputs, "dtype": pair.dtype, "weights": pair.weights}
    return align.compare(pair.models[0], ours, inputs, **{**kept, **options})


NAMES = [
    pytest.param(name, marks=pytest.mark.long if name.startswith(("timm", "torchvision")) else ())
    for name in PAIRS
]


@pytest.mark.parametrize("name", NAMES)
def test_a_right_pair_passes(name) -> None:
    pair = PAIRS[name]
    dtypes = "float64" if "net" in name else ("float64", "float32")
    result = compare(pair, pair.models[1], dtype=dtypes)
    assert result.passed, str(result)
    notes = [note for note in result.notes if "built-in table" in note]
    assert [pair.table in note for note in notes] == [True] * bool(pair.table)


@pytest.mark.parametrize("name", FURTHER)
def test_a_further_right_pair_passes(name) -> None:
    pair = FURTHER[name]
    result = compare(pair, pair.models[1])
    assert result.passed, str(result)
    notes = [note for note in result.notes if note.startswith("names paired by the ")]
    words = [word for word in (pair.table, pair.weights == "draft" and "draft") if word]
    assert [word in note for note in notes for word in words] == [True] * len(words)


def test_xlnet_in_float64_is_told_to_try_float32() -> None:
    with pytest.raises(ValueError, match=r"float64[\s\S]* Try dtype='float32'$"):
        compare(FURTHER["xlnet"], FURTHER["xlnet"].models[1], dtype="float64")


@pytest.mark.parametrize("name", [*NAMES, *FURTHER])
def test_a_fault_in_one_layer_is_found_there(name) -> None:
    pair = {**PAIRS, **FURTHER}[name]

    def faulty() -> nn.Layer:
        model = pair.models[1]()
        layer = dict(model.named_sublayers(include_self=True))[pair.place.replace("(model)", "")]
        if hasattr(layer, "_epsilon"):
            layer._epsilon = 1e-3
        else:
            layer.register_forward_post_hook(lambda _, __, out: _off(out))
        return model

    result = compare(pair, faulty)
    assert not result.passed
    assert result.first_divergence.place == pair.place, str(result)
    assert "test_library_pairs.py:" in result.first_divergence.source


def _off(output: Any) -> Any:
    """The first tensor of an output 0.1 % too large."""
    first = output[0] if isinstance(output, tuple) else output
    return (first * 1.001, *output[1:]) if isinstance(output, tuple) else first * 1.001


@pytest.mark.parametrize("name", ["roberta", "gpt2", "clip", "timm_mobilenetv2"])
def test_a_draft_begins_with_the_right_candidate(name) -> None:
    model, layer = (build() for build in PAIRS[name].models)
    torch_names = SideNames(on_torch.entries(model), list(on_torch.modules(model)))
    paddle_names = SideNames(on_paddle.entries(layer), list(on_paddle.modules(layer)))
    right = pair_names(torch_names, paddle_names, Table(), Path()).weights.partners()
    left = mapping.match(torch_names.entries, paddle_names.entries, Table())
    rows = Table({key: _first(value) for key, value in propose(left)["map"].items()})
    for entry in left.torch_left:
        if entry.name in right:
            assert {target.name for target in rows.targets(entry.name)} == right[entry.name]


def test_two_sizes_of_one_model_are_told_by_the_shapes() -> None:
    theirs, _ = text("BertModel")
    _, ours = text("BertModel", max_position_embeddings=20)
    with pytest.raises(
        ValueError, match=r"of one size\? .*position_embeddings.* of shape \(20, 24\)"
    ):
        align.compare(theirs, ours, tokens(np.random.default_rng(0)))


def _first(value: Any) -> Any:
    """A row of a draft as its first candidate settles it."""
    return value.removeprefix("? ").partition(" | ")[0] if isinstance(value, str) else value


@pytest.mark.parametrize("number", [0, 1])
def test_the_examples_of_the_docs_pass_as_written(number, capsys) -> None:
    page = Path(__file__).parents[3] / "docs" / "align_your_own.md"
    blocks = page.read_text(encoding="utf-8").split("```python\n")
    exec(blocks[number + 1].partition("```")[0], {})  # noqa: S102
    assert capsys.readouterr().out.startswith("PASS: ")
