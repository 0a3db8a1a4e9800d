"""The tensors of the real checkpoint under the reference's names."""

import numpy as np
import pytest

from align.port.installed_checkpoint import encoder_arrays
from sot_paddle.checkpoint import write_tensors


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
