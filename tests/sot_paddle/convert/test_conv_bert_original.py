"""Files of "Convolutions and self-attention": every kernel's tensors, bit-equal there and back."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import sot_paddle
from sot_paddle.convert import build_plan, convert_file
from sot_paddle.convert.formats.source import open_source, read_as_paddle
from sot_paddle.convert.state.record import Group, OptimizerState, convert
from sot_paddle.convert.state.torch_optimizer import from_torch, to_torch
from sot_paddle.tasks.glue_options import TrainConfig
from sot_paddle.train import pretrained
from tests.sot_paddle.convert.both_runs import different_arrays
from tests.sot_paddle.convert.converted import assert_comes_back, assert_same_file
from tests.sot_paddle.convert.tiny_checkpoints import linear, norm

NAME = "conv_bert_original"
E, C, INNER, V, P, K = 5, 12, 20, 23, 9, 3  # four heads of three channels
SIZES = {
    **{"hidden_size": C, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": V},
    **{"intermediate_size": INNER, "max_position_embeddings": P, "embedding_size": E},
    **{"pad_token_id": 0},
}
PLACES = {"relative_positions_mat": (1, 1, P, P)}
POOLER = linear("bert.pooler.dense", C, C)
SCORES = {**POOLER, **linear("classifier", K, C)}


def conv(name: str, out: int, group: int, width: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (out, group, width), f"{name}.bias": (out,)}


QK = {**linear("query", C, C), **linear("key", C, C)}
VALUE = linear("value", C, C)
CASES = {
    "dot_product": ({}, {**QK, **VALUE}),
    "every_term": (
        {"attention_kernel": "qk_convfixed_convq_convk 2"},
        {
            **{"convfixed_param": (1, 4, 1, 5), "convq_param": (3, 5), "convk_param": (3, 5)},
            **{**PLACES, **QK, **VALUE},
        },
    ),
    "convolution_scaled": (
        {"attention_kernel": "convolution_scaled 3"},
        {"convolution_scalar": (1, 4, 1, 1), **conv("convolution", C, 1, 7), **QK, **VALUE},
    ),
    "convbert": (
        {"attention_kernel": "convbert"},
        {
            **conv("convbert_key_depthwise", C, 1, 9),
            **{**linear("convbert_key_pointwise", 6, C), **linear("lightweight_kernel", 18, 6)},
            **{**linear("query", 6, C), **linear("key", 6, C), **VALUE},
        },
    ),
    "groups": (
        {"qk": "convolution 1 2", "value_forward": "convolution 2 3"},
        {
            **{**conv("query_conv", C, 6, 3), **conv("key_conv", C, 6, 3)},
            **conv("value_conv", C, 4, 5),
        },
    ),
    "mixed": (
        {"qk": "convolution_mixed 1 1", "value_forward": "convolution_depth_mixed 2 1"},
        {
            **{**linear("query_linear", 6, C), **linear("key_linear", 6, C)},
            **{**conv("query_conv", 6, C, 3), **conv("key_conv", 6, C, 3)},
            **{**linear("value_linear", 6, C), **linear("value_pointwise", 6, C)},
            **conv("value_conv", C, 1, 5),
        },
    ),
    "depth": (
        {"qk": "convolution_depth_no_act 1 1"},
        {
            **{**linear("query_pointwise", C, C), **linear("key_pointwise", C, C)},
            **{**conv("query_conv", C, 1, 3), **conv("key_conv", C, 1, 3), **VALUE},
        },
    ),
    "no_positions": (
        {"remove_position_embeddings": True, "embedding_size": C},
        {**QK, **VALUE},
    ),
}
"""Options, and what the original's self-attention then registers, in order (its public code)."""


def original(case: str, prefix: str = "bert.") -> dict[str, tuple[int, ...]]:
    options, attention = CASES[case]
    size = options.get("embedding_size", E)
    shapes = {
        "embeddings.position_ids": (1, P),
        "embeddings.word_embeddings.weight": (V, size),
        "embeddings.position_embeddings.weight": (P, size),
        "embeddings.token_type_embeddings.weight": (2, size),
        **norm("embeddings.LayerNorm", size),
        **(linear("embeddings_project", C, size) if size != C else {}),
    }
    if options.get("remove_position_embeddings"):
        del shapes["embeddings.position_embeddings.weight"]
    for i in range(2):
        layer = f"encoder.layer.{i}."
        shapes |= {f"{layer}attention.self.{name}": shape for name, shape in attention.items()}
        shapes |= linear(f"{layer}attention.output.dense", C, C)
        shapes |= norm(f"{layer}attention.output.LayerNorm", C)
        shapes |= linear(f"{layer}intermediate.dense", INNER, C)
        shapes |= linear(f"{layer}output.dense", C, INNER) | norm(f"{layer}output.LayerNorm", C)
    return {prefix + name: shape for name, shape in shapes.items()}


def constant(name: str) -> bool:
    return name.endswith(("position_ids", "relative_positions_mat"))


def shapes_of(arrays) -> dict[str, tuple[int, ...]]:
    return {name: tuple(array.shape) for name, array in arrays.items()}


@pytest.mark.parametrize("case", CASES)
def test_every_kernel_there_and_back_bit_for_bit(case, random_arrays) -> None:
    shapes = {**original(case), **SCORES}
    arrays = random_arrays(shapes)
    plan = build_plan(NAME, "conv_bert_base", shapes)
    assert set(plan.ignored) == {name for name in shapes if constant(name)}
    assert plan.absent == ()
    ours = plan.apply(arrays)
    model = sot_paddle.create_model("conv_bert_base", K, **{**SIZES, **CASES[case][0]})
    assert shapes_of(ours) == shapes_of(model.state_dict())
    assert_comes_back(plan, NAME, "conv_bert_base", arrays)


@pytest.mark.parametrize(
    ("case", "change", "message"),
    [
        ("every_term", {"-": "convq_param"}, "missing: .*layer.1.attention.self.convq_param"),
        ("dot_product", {"-": "value.weight"}, "missing: .*layer.1.attention.self.value.weight"),
        ("dot_product", {"-": "key.bias"}, "missing: .*layer.1.attention.self.key.bias"),
        ("mixed", {"-": "value_conv.bias"}, "missing: .*layer.1.attention.self.value_conv.bias"),
        ("groups", {"query.weight": (C, C)}, "unmapped: .*layer.1.attention.self.query.weight"),
        ("groups", {"key_linear.weight": (6, C)}, "missing: .*key_linear.weight"),
        ("convbert", {"lightconvq": (3, 3)}, "unmapped: .*self.lightconvq"),
        ("every_term", {"convk_param": (3, 7)}, r"wrong shape: .*layer.1.*convk_param \(expected"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(case, change, message) -> None:
    shapes = original(case)
    for name, shape in change.items():
        if name == "-":
            del shapes[f"bert.encoder.layer.1.attention.self.{shape}"]
        else:
            shapes[f"bert.encoder.layer.1.attention.self.{name}"] = shape
    with pytest.raises(ValueError, match=message):
        build_plan(NAME, "conv_bert_base", shapes)


def test_other_layouts_and_models_name_each_other() -> None:
    shapes = original("every_term")
    with pytest.raises(ValueError, match="is for conv_bert_base, .*not for 'bert_base'"):
        build_plan(NAME, "bert_base", shapes)
    with pytest.raises(ValueError, match="these are names of --layout conv_bert_original"):
        build_plan("sot_torch_ref", "conv_bert_base", shapes)
    made = build_plan(NAME, "conv_bert_base", shapes).destination_shapes
    with pytest.raises(ValueError, match="these are Paddle names: add --reverse"):
        build_plan(NAME, "conv_bert_base", made)


@pytest.fixture
def folder(tmp_path, random_arrays):
    """A pre-training's folder as the original writes it, with the head of masked words."""
    shapes = {
        **original("every_term"),
        **linear("cls.predictions.transform.dense", E, C),
        **norm("cls.predictions.transform.LayerNorm", E),
        **{"cls.predictions.bias": (V,), "cls.predictions.decoder.weight": (V, E)},
        "cls.predictions.decoder.bias": (V,),
    }
    arrays = random_arrays(shapes)
    for name in filter(constant, arrays):
        arrays[name] = np.arange(np.prod(shapes[name]), dtype=np.int64).reshape(shapes[name])
    place = tmp_path / "theirs"
    place.mkdir()
    torch.save({n: torch.from_numpy(a) for n, a in arrays.items()}, place / "pytorch_model.bin")
    config = {**SIZES, **CASES["every_term"][0], "model_type": "bert", "hidden_act": "gelu"}
    config |= {"layer_norm_eps": 1e-12, "architectures": ["BertForMaskedLM"]}
    (place / "config.json").write_text(json.dumps(config), "utf-8")
    (place / "spiece.model").write_bytes(b"pieces")
    return place, arrays


def test_a_folder_there_and_back(folder, tmp_path) -> None:
    place, arrays = folder
    convert_file(place, tmp_path / "ours", NAME, "conv_bert_base")
    convert_file(tmp_path / "ours", tmp_path / "back", NAME, "conv_bert_base", reverse=True)
    ours, back = (
        json.loads((tmp_path / name / "config.json").read_text("utf-8"))
        for name in ("ours", "back")
    )
    assert ours["attention_kernel"] == back["attention_kernel"] == "qk_convfixed_convq_convk 2"
    assert ours["model_type"] == "conv_bert"
    assert (back["model_type"], back["architectures"]) == ("bert", ["BertModel"])
    kept = {n: a for n, a in arrays.items() if not constant(n) and not n.startswith("cls.")}
    assert_same_file(tmp_path / "back" / "model.safetensors", kept)


def test_a_folder_is_a_checkpoint_for_training(folder) -> None:
    place, arrays = folder
    options = {"task_name": "CoLA", "data_dir": "data", "output_dir": "out", "head": "plain"}
    options |= {"model_name_or_path": str(place), "model_type": "conv-bert", "max_seq_length": P}
    config = TrainConfig(**options)
    found = pretrained.find(config)
    model = found.build(K, {**config.encoder_options, **config.head_options})
    fresh = pretrained.load(model, found)
    assert len(fresh) == 4
    assert all(name.startswith(("head.cls_fc.", "head.dense.")) for name in fresh)
    term = model.state_dict()["conv_bert.layers.0.self_attn.convq"].numpy()
    theirs = arrays["bert.encoder.layer.0.attention.self.convq_param"]
    np.testing.assert_array_equal(term, theirs)
    head = read_as_paddle(open_source(place), "conv_bert_base", pretraining_heads=True)
    dense = arrays["cls.predictions.transform.dense.weight"].T
    np.testing.assert_array_equal(head["head.words.dense.weight"], dense)
    with pytest.raises(ValueError, match="is a 'bert' checkpoint, expected roberta"):
        pretrained.find(TrainConfig(**{**options, "model_type": "roberta"}))


def test_a_parameter_without_a_gradient_travels_in_the_groups(random_arrays) -> None:
    """The relative places stand in the original's optimizer: without moments, in its order."""
    arrays = random_arrays({**original("every_term"), **SCORES})
    del arrays["bert.embeddings.position_ids"]
    trained = {name: array for name, array in arrays.items() if not constant(name)}
    options = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.01, "amsgrad": False}
    moments = {"moment1": trained, "moment2": {n: a * a for n, a in trained.items()}}
    groups = (Group(tuple(trained), 1e-2, None, options),)
    state = OptimizerState("torch", "adamw", groups, moments, dict.fromkeys(trained, 7), 7)
    written = to_torch(state, [list(arrays)])
    (group,) = written["param_groups"]
    assert (group["params"], group["param_names"]) == (list(range(len(arrays))), list(arrays))
    assert set(written["state"]) == {i for i, name in enumerate(arrays) if not constant(name)}
    plan = build_plan(NAME, "conv_bert_base", shapes_of(arrays))
    moved = convert(from_torch(written), plan)
    moved.check(plan.destination_shapes)
    back = build_plan(NAME, "conv_bert_base", plan.destination_shapes, reverse=True)
    assert different_arrays(convert(moved, back), state) == []
