"""Saving and loading: bit-equal round trips, refusals that change nothing."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import ml_dtypes
import numpy as np
import paddle
import pytest

from sot_paddle import create_model, load_weights, save_weights
from sot_paddle.checkpoint import read_tensors, write_tensors
from sot_paddle.weights import to_numpy

SUFFIXES = (".safetensors", ".pdparams")
IDS = [[1, 2, 3, 4], [5, 6, 0, 0]]


def state(model) -> dict[str, np.ndarray]:
    return {name: to_numpy(tensor) for name, tensor in model.state_dict().items()}


def same_bits(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    assert list(a) == list(b)
    return all(a[n].dtype == b[n].dtype and a[n].tobytes() == b[n].tobytes() for n in a)


def disturb_statistics(model) -> None:
    """Give the buffers values that no initialisation has."""
    for index, buffer in enumerate(model.buffers()):
        if paddle.is_floating_point(buffer):
            paddle.assign(buffer + 0.125 * (index + 1), output=buffer)


VISION = {
    "sot_tiny": {"img_size": 16, "embed_dim": 12, "depth": 1, "num_heads": 3, "wr_dim": 4},
    "deit_tiny_sot": {"img_size": 16, "embed_dim": 12, "depth": 1, "num_heads": 3, "wr_dim": 4},
    "swin_tiny": {"img_size": 16, "embed_dim": 8, "depths": (1, 1), "num_heads": (2, 4)},
}
TEXT = "bert_base_mgcrp"


@pytest.fixture
def build(tiny_bert):
    """Builds a tiny model of a registry name."""

    def built(name: str, **options):
        if name in VISION:
            return create_model(name, 3, **{**VISION[name], **options})
        return tiny_bert(name, **options)

    return built


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize(
    ("name", "dtype"),
    [(TEXT, "float32"), ("bert_base", "float64"), (TEXT, "bfloat16")]
    + [(name, "float32") for name in VISION],
)
def test_round_trip_is_bit_equal(tmp_path: Path, build, name, dtype, suffix) -> None:
    source, target = (build(name).to(dtype=dtype) for _ in range(2))
    disturb_statistics(source)
    assert not same_bits(state(source), state(target))
    save_weights(source, tmp_path / f"m{suffix}")
    assert load_weights(target, tmp_path / f"m{suffix}") == []
    assert same_bits(state(source), state(target))
    expected = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    assert {array.dtype for array in state(target).values()} == {np.dtype(expected)}
    assert [path.name for path in tmp_path.iterdir()] == [f"m{suffix}"]


def test_a_loaded_model_computes_and_trains_as_the_saved_one(tmp_path: Path, tiny_bert) -> None:
    source, target = tiny_bert(), tiny_bert()
    save_weights(source, tmp_path / "model.safetensors")
    load_weights(target, tmp_path)  # a directory
    results = []
    for model in (source, target):
        for _ in range(2):  # twice: loading must leave no graph behind the parameters
            logits = model(paddle.to_tensor(IDS))
            (logits**2).sum().backward()
        gradients = {name: p.grad.numpy() for name, p in model.named_parameters()}
        results.append({"logits": logits.numpy(), **gradients})
    for name, array in results[0].items():
        np.testing.assert_array_equal(results[1][name], array, err_msg=name)
    assert all(parameter.is_leaf for parameter in target.parameters())


def test_values_are_cast_to_the_dtype_of_the_model(tmp_path: Path, tiny_bert) -> None:
    source, target = tiny_bert().to(dtype="bfloat16"), tiny_bert()
    save_weights(source, tmp_path / "m.safetensors")
    load_weights(target, tmp_path / "m.safetensors")
    for name, array in state(source).items():
        np.testing.assert_array_equal(state(target)[name], array.astype(np.float32))


def test_metadata_describe_the_model(tmp_path: Path, tiny_bert, tiny_options) -> None:
    save_weights(tiny_bert(), tmp_path / "m.safetensors")
    metadata = read_tensors(tmp_path / "m.safetensors")[1]
    assert metadata["model"] == "bert_base_mgcrp"
    assert metadata["head"] == "mgcrp_qk"
    assert metadata["sot_paddle"] == "1"
    assert metadata["num_attention_heads"] == "3"
    config = json.loads(metadata["config"])
    for name in ("hidden_size", "vocab_size", "intermediate_size", "max_position_embeddings"):
        assert config[name] == tiny_options[name]
    assert config["layer_norm_eps"] == 1e-12
    assert "freeze_encoder" not in config


@pytest.mark.parametrize("declared", [False, True])
def test_a_file_without_a_head_leaves_the_head_and_names_it(
    tmp_path: Path, tiny_bert, caplog, declared: bool
) -> None:
    source, target = tiny_bert(), tiny_bert()
    arrays = state(source)
    head = [name for name in arrays if name.startswith("head.")]
    kept = head[:1] if declared else []  # with a list of absent tensors a part may be there
    absent = [name for name in head if name not in kept]
    metadata = {"absent": json.dumps(absent)} if declared else {}
    encoder = {n: a for n, a in arrays.items() if n not in absent}
    write_tensors(tmp_path / "m.safetensors", encoder, metadata)
    before = state(target)
    with caplog.at_level(logging.WARNING, logger="sot_paddle.weights"):
        assert load_weights(target, tmp_path / "m.safetensors") == absent
    assert absent[0] in caplog.text
    assert "left as initialised" in caplog.text
    after = state(target)
    for name in arrays:
        np.testing.assert_array_equal(after[name], (before if name in absent else arrays)[name])


LAYER = "bert.encoder.layers.1.linear1.weight"
BROKEN = {
    "none of this model's tensors .*model.bert.*convert_weights.py": lambda a: {
        f"model.{name}": array for name, array in a.items()
    },
    "tensors that this model has not: head.extra; build the model": lambda a: {
        **a,
        "head.extra": np.zeros(2, np.float32),
    },
    rf"{LAYER} is missing": lambda a: {name: a[name] for name in a if name != LAYER},
    r"head\..* is missing": lambda a: dict(list(a.items())[:-1]),
    rf"{LAYER} has shape \(20, 12\), expected \(12, 20\)": lambda a: {
        **a,
        LAYER: np.ascontiguousarray(a[LAYER].T),
    },
    r"bert.embeddings.word_embeddings.weight is missing": lambda a: {},
}
"""What is said -> what is wrong with the tensors of a file."""


@pytest.mark.parametrize("message", BROKEN)
def test_a_refused_file_changes_nothing(tmp_path, tiny_bert, message) -> None:
    source, target, path = tiny_bert(), tiny_bert(), tmp_path / "m.safetensors"
    write_tensors(path, BROKEN[message](state(source)))
    before = state(target)
    with pytest.raises(ValueError, match=message) as caught:
        load_weights(target, path)
    assert str(path) in str(caught.value)
    assert same_bits(before, state(target))


OTHER_OPTIONS = [
    ("sot_tiny", {"num_heads": 2}, "num_heads=3, and this asks for num_heads=2: give the same"),
    ("sot_tiny", {"qk_scale": 0.5}, "qk_scale=None, and this asks for qk_scale=0.5"),
    ("sot_tiny", {"alpha": 0.7}, "alpha=0.5, and this asks for alpha=0.7"),
    ("sot_tiny", {"head_qkv_bias": True}, "head_qkv_bias=False, and this asks for head_qkv_bias="),
    ("swin_tiny", {"num_heads": (4, 4)}, r"num_heads=\[2, 4\], and this asks for num_heads=\[4, 4"),
    (TEXT, {"hidden_act": "relu"}, "hidden_act=gelu, and this asks for hidden_act=relu"),
    (TEXT, {"layer_norm_eps": 1e-3}, "layer_norm_eps=1e-12, and this asks for layer_norm_eps=0.0"),
    (TEXT, {"num_attention_heads": 2}, "num_attention_heads=3, and this asks for num_attention_h"),
    (TEXT, {"mask_padding": True}, "mask_padding=False, and this asks for mask_padding=True"),
    (TEXT, {"fusion": "aggre_all"}, "fusion=None, and this asks for fusion=aggre_all"),
]


@pytest.mark.parametrize(("name", "options", "message"), OTHER_OPTIONS)
def test_a_file_made_with_other_options_is_refused(tmp_path, build, name, options, message):
    """Most of these change no shape, so nothing else would tell."""
    path = tmp_path / "m.safetensors"
    save_weights(build(name), path)
    model = build(name, **options)
    before = state(model)
    with pytest.raises(ValueError, match=message) as caught:
        load_weights(model, path)
    assert str(path) in str(caught.value)
    assert same_bits(before, state(model))
