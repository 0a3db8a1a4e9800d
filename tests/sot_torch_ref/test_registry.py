"""Models by name; overrides are strict."""

import pytest
import torch

from sot_torch_ref import create_model

TINY = {
    "vocab_size": 31,
    "hidden_size": 12,
    "num_hidden_layers": 1,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "max_position_embeddings": 16,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_default_dtype_when_built(dtype: torch.dtype) -> None:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        for pooling in ("mgcrp_qk", "mgcrp", "gcp", "pooler"):
            model = create_model("bert_base", pooling=pooling, **TINY)
            tensors = [*model.parameters(), *model.buffers()]
            assert {t.dtype for t in tensors if t.is_floating_point()} == {dtype}
    finally:
        torch.set_default_dtype(before)


def test_unknown_name_lists_near_ones() -> None:
    with pytest.raises(ValueError, match=r"unknown model 'bert_bas'; did you mean: bert_base, "):
        create_model("bert_bas")
    with pytest.raises(ValueError, match="did you mean: bert_base, bert_base_mgcrp, bert_large"):
        create_model("xyz")


def test_unknown_override_lists_near_ones() -> None:
    with pytest.raises(
        ValueError, match="unknown override 'num_head'; did you mean: .*head_num_heads"
    ):
        create_model("bert_base", num_head=3)
    with pytest.raises(ValueError, match="unknown override 'hidden_sise'; .*hidden_size"):
        create_model("bert_base", hidden_sise=3)
