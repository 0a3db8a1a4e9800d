"""Converted weights of image models: timm's reading, and the original's state dict."""

import numpy as np
import pytest
import torch

import sot_paddle
import sot_torch_ref  # noqa: F401 (makes timm importable beside a CPU build of torch)
from sot_paddle.convert import build_plan, convert_file


def test_timm_reads_microsofts_names_as_we_do(toy):
    timm, arrays = pytest.importorskip("timm"), toy("swin_microsoft").arrays
    sizes = {"img_size": 24, "patch_size": 4, "embed_dim": 12, "window_size": 3, "mlp_ratio": 5 / 3}
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
    ours = toy("swin_microsoft").plan.apply(arrays)
    assert set(ours) == set(timms)
    for name, array in ours.items():
        np.testing.assert_array_equal(array, timms[name], err_msg=name)


def test_the_original_state_dict_is_loaded_and_returns_bit_equal(
    tmp_path, published_state, random_arrays
):
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
    sot_paddle.save_weights(model, tmp_path / "c.pdparams")
    convert_file(tmp_path / "c.pdparams", tmp_path / "d.pth", *args, reverse=True)
    returned = torch.load(tmp_path / "d.pth", weights_only=True)["state_dict"]
    assert set(returned) == set(arrays)
    for name, array in arrays.items():
        assert returned[name].numpy().tobytes() == array.tobytes(), name
