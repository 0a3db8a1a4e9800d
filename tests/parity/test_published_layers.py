"""Compare the layers that the original's dictionaries describe with the reference's own options.

Ours: ``sot_paddle.published``. Reference: the same part of a whole reference model, built from the
reference's options. The whole model also gives the weights and their conversion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import paddle
import pytest
import torch

import sot_torch_ref
from sot_paddle import published
from sot_paddle.convert import build_plan
from sot_torch_ref.features import Features
from sot_torch_ref.heads import HeadConfig, build_head
from tests.parity.models import encoder_options
from tests.parity.sides import assert_same, paddle_precision, torch_precision

DIM, CLASSES, SIZE, CHANNELS, SEED = 12, 5, 32, 4, 13
BERT = encoder_options(DIM, 1, 8, 10, 8)
SOT = {
    "img_size": SIZE,
    "in_chans": CHANNELS,
    "embed_dim": DIM,
    "depth": 1,
    "num_heads": 2,
    "mlp_ratio": 1.0,
}
SVPN = {"type": "svPN", "alpha": 0.4, "iterNum": 1, "svNum": 1, "regular": None, "input_dim": 4}
TRIANGLE = {"type": "svPN", "iterNum": 3, "svNum": 2, "init_weight": "one", "vec": "triu"}
MGCRP = {"dim": DIM, "num_heads": 3, "wr_dim": 4, "qkv_bias": True}
GCP = {"dim": DIM, "num_heads": 5, "qkv_dim": 2}
REFERENCE = {"pooling": "mgcrp", "head_num_heads": 3, "wr_dim": 4, "qkv_bias": True, "alpha": 0.4}
TWO_VALUES = {**REFERENCE, "alpha": 0.5, "num_iter": 3, "num_sv": 2, "start": "one"}
DEFAULTS = {"pooling": "mgcrp", "head_num_heads": 8, "wr_dim": 16, "qkv_bias": False}


def mgcrp(fusion: str, normalization: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the original's dictionary of a classifier with the head MGCrP."""
    arguments = {**MGCRP, "normalization": normalization}
    return {"type": "MGCrP", "fusion_type": fusion, "args": arguments}


CLASSIFIERS: dict[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "mgcrp sum_loss": (mgcrp("sum_loss", SVPN), {**REFERENCE, "fusion": "sum_loss"}),
    "mgcrp sqrt concat": (
        mgcrp("concat", {"type": "sqrt_d"}),
        {**REFERENCE, "fusion": "concat", "normalization": "sqrt_d"},
    ),
    "mgcrp no norm aggre_all": (
        mgcrp("aggre_all", None),
        {**REFERENCE, "fusion": "aggre_all", "normalization": "none"},
    ),
    "mgcrp triangle": (
        mgcrp("sum_fc", TRIANGLE),
        {**TWO_VALUES, "vec": "triu", "fusion": "sum_fc"},
    ),
    "mgcrp dropout": (
        mgcrp("sum_fc", {**SVPN, "regular": 0.3, "vec": None}),
        {**REFERENCE, "fusion": "sum_fc", "head_dropout": 0.3},
    ),
    **{
        f"mgcrp {norm}": (
            mgcrp("sum_fc", {"type": kind}),
            {**REFERENCE, "fusion": "sum_fc", "normalization": norm},
        )
        for kind, norm in (("sqrt_t", "sqrt_t"), ("ePN", "epn"), ("LN", "ln"), (None, "none"))
    },
    "mgcrp defaults": (
        {"type": "MGCrP"},
        {**DEFAULTS, "normalization": "none", "fusion": "sum_fc"},
    ),
    "fc": ({"type": "fc", "fusion_type": "sum_loss"}, {"pooling": "fc"}),
    "class token": ({"type": None}, {"pooling": "none"}),
    "gap": (
        {"type": "GAP", "fusion_type": "aggre_all"},
        {"pooling": "gap", "fusion": "aggre_all"},
    ),
    "gap with arguments": (  # of which only dim counts
        {"type": "GAP", "fusion_type": "sum_fc", "args": {**MGCRP, "normalization": SVPN}},
        {"pooling": "gap", "fusion": "sum_fc"},
    ),
}


@pytest.mark.parametrize(("dictionary", "options"), CLASSIFIERS.values(), ids=[*CLASSIFIERS])
def test_classifier(dictionary: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    train = "head_dropout" not in options  # a random mask: its rate is compared, and evaluation
    with torch_precision("float64"):
        whole = sot_torch_ref.create_model("bert_base_mgcrp", CLASSES, **{**BERT, **options})
    weights = converted_weights(whole, "bert_base_mgcrp", "head")
    tokens = np.random.default_rng(SEED + 1).normal(size=(4, 6, DIM))
    assert_same(
        of_classifier(published.Classifier, dictionary, weights, tokens, train=train),
        of_reference(
            whole,
            "head",
            lambda x: whole.head(Features(x[:, 0], x[:, 1:], None))[0],
            tokens,
            train=train,
        ),
    )


def test_classifier_of_visual_tokens_alone() -> None:
    options = {"pooling": "gcp", "head_num_heads": 5, "qkv_dim": 2, "fusion": "word_tokens"}
    with torch_precision("float64"):
        whole = sot_torch_ref.create_model("bert_base_mgcrp", CLASSES, **{**BERT, **options})
        config = HeadConfig(**{"head_dropout": 0.0, **options})
        head = build_head(config, hidden_size=DIM, num_classes=CLASSES, has_class_token=False)
    weights = converted_weights(whole, "bert_base_mgcrp", "head")
    head.load_state_dict(whole.head.state_dict())
    tokens = np.random.default_rng(SEED + 1).normal(size=(4, 6, DIM))
    dictionary = {"type": "GCP", "args": GCP}
    assert_same(
        of_classifier(published.OnlyVisualTokensClassifier, dictionary, weights, tokens),
        of_reference(whole, "head", lambda x: head(Features(None, x, None))[0], tokens),
    )


TOKEN_EMBEDDINGS = [
    ({"type": "DenseNet", "large_output": True}, {"token_type": "densenet", "large_output": True}),
    ({"type": "DenseNet", "dense_norm": "bn"}, {"token_type": "densenet", "dense_norm": "bn"}),
    ({"type": "ResNet", "embedding_dim": 16}, {"token_type": "resnet", "token_dim": 16}),
    ({"type": "ResNet", "token_dim": 12}, {"token_type": "resnet", "token_dim": 12}),
    ({"type": "Inception"}, {"token_type": "inception"}),
    # two that ignore large_output
    ({"type": "Naive_linear", "large_output": True}, {"token_type": "linear"}),
    ({"type": "Non-local", "large_output": True}, {"token_type": "nonlocal"}),
]


@pytest.mark.parametrize(("dictionary", "options"), TOKEN_EMBEDDINGS, ids=str)
def test_embedding_of_image_tokens(
    dictionary: Mapping[str, Any], options: Mapping[str, Any]
) -> None:
    with torch_precision("float64"):
        whole = sot_torch_ref.create_model("sot_tiny", CLASSES, **SOT, **options)
    weights = converted_weights(whole, "sot_tiny", "embed")
    images = np.random.default_rng(SEED + 1).normal(size=(3, CHANNELS, SIZE, SIZE))
    with paddle_precision("float64"), paddle.no_grad():
        layer = published.TokenEmbed(dictionary, img_size=SIZE, in_chans=CHANNELS, embed_dim=DIM)
        load(layer.tokens, weights)
        paddle_values = {"output 0": layer(paddle.to_tensor(images)).numpy()}
    torch_values = of_reference(whole, "embed", lambda x: whole.embed(x)[0], images)
    paddle_values["tokens"] = layer.num_patches
    torch_values["tokens"] = whole.embed.num_tokens
    assert_same(paddle_values, torch_values)


def of_classifier(
    kind: Callable[..., paddle.nn.Layer],
    dictionary: Mapping[str, Any],
    weights: Mapping[str, np.ndarray],
    tokens: np.ndarray,
    *,
    train: bool = True,
) -> dict[str, Any]:
    """Build a layer of the product from a dictionary and return its outputs and dropout rates."""
    with paddle_precision("float64"), paddle.no_grad():
        layer = kind(with_dropout_layer(dictionary), num_classes=CLASSES, input_dim=DIM)
        load(layer.head, weights)
        layer.train() if train else layer.eval()
        values = named_outputs(layer(paddle.to_tensor(tokens)))
    return values | dropout_rates(layer.sublayers(), paddle.nn.Dropout)


def of_reference(
    whole: torch.nn.Module,
    name: str,
    part: Callable[[torch.Tensor], Any],
    inputs: np.ndarray,
    *,
    train: bool = True,
) -> dict[str, Any]:
    """Return the outputs of a named part of the reference model and the rates of its dropout."""
    whole.train(train)
    with torch.no_grad():
        values = named_outputs(part(torch.from_numpy(inputs)))
    return values | dropout_rates(getattr(whole, name).modules(), torch.nn.Dropout)


def converted_weights(whole: torch.nn.Module, model: str, part: str) -> dict[str, np.ndarray]:
    """Move the biases of a reference model away from zero; return a part's weights as Paddle's."""
    rng, state = np.random.default_rng(SEED), {}
    for name, tensor in whole.state_dict().items():
        array = tensor.numpy()
        if array.dtype == np.float64 and array.ndim <= 1:
            array = np.asarray(array + 0.1 * rng.uniform(size=array.shape))
        state[name] = array
    whole.load_state_dict({name: torch.tensor(array) for name, array in state.items()})
    plan = build_plan("sot_torch_ref", model, {name: array.shape for name, array in state.items()})
    return {
        name.removeprefix(f"{part}."): array
        for name, array in plan.apply(state).items()
        if name.startswith(f"{part}.")
    }


def load(layer: paddle.nn.Layer, weights: Mapping[str, np.ndarray]) -> None:
    """Load every weight by name."""
    missing, unexpected = layer.set_state_dict(dict(weights))
    assert (missing, unexpected) == ([], [])


def named_outputs(output: Any) -> dict[str, np.ndarray]:
    """Name the logits: two of them where the losses are summed."""
    outputs = output if isinstance(output, tuple) else (output,)
    return {f"output {index}": tensor.numpy() for index, tensor in enumerate(outputs)}


def dropout_rates(layers: Iterable[Any], kind: type) -> dict[str, list[float]]:
    """Return the rates of the dropout layers by name; nothing where there is none."""
    rates = [layer.p for layer in layers if isinstance(layer, kind)]
    return {"rates of dropout": rates} if rates else {}


def with_dropout_layer(dictionary: Mapping[str, Any]) -> dict[str, Any]:
    """Put a dropout layer in the place of the rate under ``regular``, however deep it is."""
    replaced = {}
    for key, value in dictionary.items():
        if isinstance(value, Mapping):
            value = with_dropout_layer(value)
        elif key == "regular" and value is not None:
            value = paddle.nn.Dropout(value)
        replaced[key] = value
    return replaced
