"""Converted weights in the models: timm's reading, the original's state dicts, other sizes.

The numbers of timm: cases timm_deit and timm_swin.
"""

import numpy as np
import pytest

from sot_paddle.convert import build_plan, convert_file
from sot_paddle.convert.formats.checkpoint_reading import read_for_model


@pytest.fixture(scope="module")
def frameworks():
    """(torch, timm, paddle, sot_paddle)."""
    pytest.importorskip("sot_torch_ref")  # makes timm importable beside a CPU torch
    torch, timm = pytest.importorskip("torch"), pytest.importorskip("timm")
    paddle, sot_paddle = pytest.importorskip("paddle"), pytest.importorskip("sot_paddle")
    sot_paddle.list_models()  # imports the models
    return torch, timm, paddle, sot_paddle


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
