"""Converted weights in the models: timm's own numbers, and the original's state dicts that run."""

import contextlib

import numpy as np
import pytest

from align.weights import build_plan, convert_file
from align.weights.engine.adapting import shapes_for
from align.weights.formats.checkpoint_reading import read_for_model

LOGITS, GRADIENTS = 1e-10, 1e-9  # relative to the largest; float64 on both sides


@pytest.fixture(scope="module")
def frameworks():
    """(torch, timm, paddle, sot_paddle)."""
    pytest.importorskip("sot_torch_ref")  # makes timm importable beside a CPU torch
    torch, timm = pytest.importorskip("torch"), pytest.importorskip("timm")
    paddle, sot_paddle = pytest.importorskip("paddle"), pytest.importorskip("sot_paddle")
    sot_paddle.list_models()  # imports the models
    return torch, timm, paddle, sot_paddle


@pytest.fixture
def in_float64(frameworks):
    """Both frameworks with float64 as their default."""
    torch, _, paddle, _ = frameworks
    with contextlib.ExitStack() as stack:
        stack.callback(torch.set_default_dtype, torch.get_default_dtype())
        stack.callback(paddle.set_default_dtype, paddle.get_default_dtype())
        torch.set_default_dtype(torch.float64)
        paddle.set_default_dtype("float64")
        yield frameworks


def shake(torch, model) -> None:
    """Move every parameter off its initialisation, so that none is zero, one or alike."""
    rng = np.random.default_rng(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.tensor(0.1 * rng.normal(size=tuple(parameter.shape))))


def assert_as_timm(frameworks, tmp_path, layout, name, theirs, ours, size):
    """Save timm's state dict, convert, load, and compare logits and every gradient."""
    torch, _, paddle, sot_paddle = frameworks
    torch.save(theirs.state_dict(), tmp_path / "timm.pth")
    convert_file(tmp_path / "timm.pth", tmp_path / "ours.safetensors", layout, name)
    convert_file(tmp_path / "ours.safetensors", tmp_path / "back.pth", layout, name, reverse=True)
    returned = torch.load(tmp_path / "back.pth", weights_only=True)
    state = theirs.state_dict()
    assert set(returned) == set(state)
    assert all(torch.equal(returned[key], tensor) for key, tensor in state.items())

    assert sot_paddle.load_weights(ours, tmp_path / "ours.safetensors") == []
    theirs.eval()
    ours.eval()
    rng = np.random.default_rng(1)
    images = rng.normal(size=(2, 3, size, size))
    reference, made = theirs(torch.tensor(images)), ours(paddle.to_tensor(images))
    expected = reference.detach().numpy()
    assert expected.dtype == made.numpy().dtype == np.float64
    assert np.abs(expected[0] - expected[1]).max() > 1e-2 * np.abs(expected).max()
    np.testing.assert_allclose(made.numpy(), expected, rtol=0, atol=LOGITS * np.abs(expected).max())

    weights = rng.normal(size=expected.shape)
    (reference * torch.tensor(weights)).sum().backward()
    (made * paddle.to_tensor(weights)).sum().backward()
    plan = build_plan(layout, name, {key: tuple(t.shape) for key, t in state.items()})
    gradients = plan.apply({n: p.grad.numpy() for n, p in theirs.named_parameters()})
    found = {n: p.grad.numpy() for n, p in ours.named_parameters()}
    assert set(gradients) == set(found)
    largest = max(np.abs(value).max() for value in gradients.values())
    for key, value in gradients.items():
        scale = max(np.abs(value).max(), 1e-6 * largest)  # a key's bias has a gradient of zero
        np.testing.assert_allclose(found[key], value, rtol=0, atol=GRADIENTS * scale, err_msg=key)


def test_small_deit_has_the_numbers_of_timm(in_float64, tmp_path):
    torch, timm, _, sot_paddle = in_float64
    sizes = {"img_size": 24, "patch_size": 8, "embed_dim": 24, "depth": 2, "num_heads": 3}
    theirs = timm.create_model("deit_tiny_patch16_224", num_classes=5, **sizes)
    shake(torch, theirs)
    ours = sot_paddle.create_model("deit_tiny", num_classes=5, **sizes)
    assert_as_timm(in_float64, tmp_path, "deit_timm", "deit_tiny", theirs, ours, 24)


@pytest.mark.parametrize("depths", [(1, 2), (2, 1, 3)])
def test_small_swin_has_the_numbers_of_timm(in_float64, tmp_path, depths):
    torch, timm, _, sot_paddle = in_float64
    sizes = {"img_size": 64, "embed_dim": 12, "window_size": 4, "depths": depths}
    sizes["num_heads"] = (2, 3, 4)[: len(depths)]
    theirs = timm.create_model("swin_tiny_patch4_window7_224", num_classes=5, **sizes)
    shake(torch, theirs)
    ours = sot_paddle.create_model("swin_tiny", num_classes=5, **sizes)
    assert_as_timm(in_float64, tmp_path, "swin_timm", "swin_tiny", theirs, ours, 64)


def test_microsofts_patch_merging_joins_tokens_in_timms_order(in_float64):
    """So no channel of the reduction moves: x0, x1, x2, x3 of the release are timm's four."""
    torch, timm, _, _ = in_float64
    merging = timm.models.swin_transformer.PatchMerging(3)
    shake(torch, merging)
    x = torch.tensor(np.random.default_rng(0).normal(size=(2, 4, 6, 3)))
    four = [x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]]
    expected = merging.reduction(merging.norm(torch.cat(four, dim=-1)))
    assert torch.equal(merging(x), expected)
    other = merging.reduction(merging.norm(torch.cat([four[0], four[2], four[1], four[3]], -1)))
    assert not torch.allclose(merging(x), other)


def test_timm_reads_microsofts_names_as_we_do(frameworks, image_shapes, random_arrays):
    torch, timm, _, _ = frameworks
    arrays = random_arrays(image_shapes("swin_microsoft"))
    sizes = {
        "img_size": 24,
        "patch_size": 4,
        "embed_dim": 12,
        "window_size": 3,
        "mlp_ratio": 20 / 12,
    }
    theirs = timm.create_model(
        "swin_tiny_patch4_window7_224", num_classes=5, depths=(1, 2), num_heads=(2, 3), **sizes
    )
    state = {name: torch.tensor(array) for name, array in arrays.items()}
    read = timm.models.swin_transformer.checkpoint_filter_fn({"model": state}, theirs)
    shapes = {name: tuple(tensor.shape) for name, tensor in read.items()}
    assert shapes == {n: tuple(t.shape) for n, t in theirs.state_dict().items()}
    timms = build_plan("swin_timm", "swin_tiny", shapes).apply(
        {name: tensor.numpy() for name, tensor in read.items()}
    )
    ours = build_plan("swin_microsoft", "swin_tiny", image_shapes("swin_microsoft")).apply(arrays)
    assert set(ours) == set(timms)
    for name, array in ours.items():
        np.testing.assert_array_equal(array, timms[name], err_msg=name)


def test_the_original_state_dict_runs_and_returns_bit_equal(
    frameworks, tmp_path, published_state, random_arrays
):
    torch, _, paddle, sot_paddle = frameworks
    tensors = published_state("sot_official_tiny")["tensors"]
    arrays = random_arrays({t["name"]: tuple(t["shape"]) for t in tensors})
    for name, array in arrays.items():
        if name.endswith("running_var"):
            arrays[name] = np.abs(array) + np.float32(0.5)
        elif array.ndim > 1 and name != "pos_embed":
            arrays[name] = array * np.float32(0.05)
        elif not array.ndim:
            arrays[name] = np.zeros((), np.int64)
    torch.save({n: torch.tensor(a) for n, a in arrays.items()}, tmp_path / "a.pth")
    there, args = tmp_path / "b.safetensors", ("sot_official", "SoT_Tiny")
    convert_file(tmp_path / "a.pth", there, *args)
    model = sot_paddle.create_model("sot_tiny")
    assert sot_paddle.load_weights(model, there) == []
    model.eval()
    images = np.random.default_rng(0).normal(size=(1, 3, 224, 224)).astype(np.float32)
    with paddle.no_grad():
        logits = model(paddle.to_tensor(images)).numpy()
    assert logits.shape == (1, 1000)
    assert np.isfinite(logits).all()
    sot_paddle.save_weights(model, tmp_path / "c.pdparams")
    convert_file(tmp_path / "c.pdparams", tmp_path / "d.pth", *args, reverse=True)
    returned = torch.load(tmp_path / "d.pth", weights_only=True)["state_dict"]
    assert set(returned) == set(arrays)
    for name, array in arrays.items():
        assert returned[name].numpy().tobytes() == array.tobytes(), name


def test_deit_of_timm_starts_our_model_at_another_size(frameworks, tmp_path):
    torch, timm, _, sot_paddle = frameworks
    sizes = {"embed_dim": 24, "depth": 2, "num_heads": 3}
    theirs = timm.create_model(
        "deit_tiny_patch16_224", num_classes=5, img_size=24, patch_size=8, **sizes
    )
    torch.save({"model": theirs.state_dict()}, tmp_path / "deit.pth")
    ours = sot_paddle.create_model("deit_tiny_sot", num_classes=7, img_size=64, wr_dim=4, **sizes)
    shapes = {name: tuple(tensor.shape) for name, tensor in ours.state_dict().items()}
    fitted = read_for_model(tmp_path / "deit.pth", "deit_tiny_sot", shapes)
    assert set(fitted.arrays) | set(fitted.fresh) == set(shapes)
    assert all(name.startswith(("embed.", "head.")) for name in fitted.fresh)
    assert {n: tuple(a.shape) for n, a in fitted.arrays.items()}.items() <= shapes.items()
    new = timm.layers.resample_abs_pos_embed(theirs.pos_embed.detach(), [8, 8])
    np.testing.assert_allclose(fitted.arrays["pos_embed"], new.numpy(), rtol=0, atol=1e-6)


def forward_plan(sot_paddle, model: str, **options):
    """A plan to Paddle for the shapes of one of our models."""
    built = sot_paddle.create_model(model, num_classes=5, **options)
    shapes = {name: tuple(tensor.shape) for name, tensor in built.state_dict().items()}
    back = build_plan("sot_torch_ref", model, shapes, reverse=True)
    torch_shapes = back.destination_shapes
    return build_plan("sot_torch_ref", model, torch_shapes), shapes


VIT = {"embed_dim": 12, "depth": 1, "num_heads": 2, "wr_dim": 4}
SWIN = {"embed_dim": 12, "depths": (1, 1, 1), "num_heads": (1, 2, 3), "window_size": 5, "wr_dim": 4}


@pytest.mark.parametrize(
    ("model", "options", "old", "new"),
    [
        ("sot_tiny", VIT, 64, 96),
        ("sot_tiny", VIT, 224, 160),
        ("sot_tiny", {**VIT, "token_type": "resnet"}, 32, 96),
        ("sot_tiny", {**VIT, "token_type": "inception"}, 224, 336),
        ("sot_tiny", {**VIT, "token_type": "nonlocal"}, 32, 64),
        ("deit_tiny", VIT, 32, 64),
        ("deit_tiny_sot", VIT, 32, 224),
        ("swin_tiny", SWIN, 128, 32),
        ("swin_tiny", SWIN, 32, 80),
        ("swin_tiny_sot", SWIN, 128, 64),
    ],
)
def test_the_shapes_of_another_size_are_those_of_the_model_built_for_it(
    frameworks, model, options, old, new
):
    plan, before = forward_plan(frameworks[3], model, img_size=old, **options)
    _, after = forward_plan(frameworks[3], model, img_size=new, **options)
    assert shapes_for(plan, img_size=new) == after
    assert before != after
    assert shapes_for(plan) == before


def test_sizes_that_change_the_token_embedding_itself_are_refused(frameworks):
    plan, _ = forward_plan(frameworks[3], "sot_tiny", img_size=32, token_type="resnet", **VIT)
    with pytest.raises(ValueError, match="changes the third stride of the token embedding 'resn"):
        shapes_for(plan, img_size=224)
    plan, _ = forward_plan(frameworks[3], "sot_tiny", img_size=28, token_type="linear", **VIT)
    with pytest.raises(ValueError, match="cannot change the token embedding 'linear'"):
        shapes_for(plan, img_size=56)
