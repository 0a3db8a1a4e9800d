"""The real checkpoint: found, or refused in one sentence that says what to do."""

import sys

import numpy as np
import pytest

from align.port import installed_checkpoint as checkpoint
from align.port.installed_checkpoint import CheckpointMissingError, encoder_arrays, find_checkpoint
from sot_paddle.checkpoint import write_tensors


def test_a_missing_package_is_a_user_error_that_says_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, checkpoint.PACKAGE, None)  # importing it now fails
    with pytest.raises(CheckpointMissingError, match="not installed; run `make setup`"):
        find_checkpoint()
    assert issubclass(CheckpointMissingError, ValueError)


def test_the_installed_one_has_weights_a_vocabulary_and_a_configuration():
    try:
        folder = find_checkpoint()
    except CheckpointMissingError:
        pytest.skip("the real checkpoint is not installed")
    assert {"model.safetensors", "vocab.txt", "config.json"} <= {p.name for p in folder.iterdir()}


def test_encoder_arrays_are_the_files_values_in_float64_under_the_references_names(tmp_path):
    value = np.array([[1.1, -2.3, 0.7]], "float32")
    write_tensors(tmp_path / "model.safetensors", {"a.weight": value, "pooler.x": value})
    state = {"bert.a.weight": np.zeros((1, 3)), "head.word_fc.weight": np.zeros((2, 2))}
    found = encoder_arrays(tmp_path, state)
    assert list(found) == ["bert.a.weight"]
    assert found["bert.a.weight"].dtype == np.float64
    np.testing.assert_array_equal(found["bert.a.weight"], value.astype("float64"))


def test_a_tensor_that_the_file_lacks_is_named(tmp_path):
    write_tensors(tmp_path / "model.safetensors", {"a.weight": np.ones(2, "float32")})
    with pytest.raises(ValueError, match=r"lacks bert\.b\.weight"):
        encoder_arrays(tmp_path, {"bert.a.weight": np.ones(2), "bert.b.weight": np.ones(2)})
