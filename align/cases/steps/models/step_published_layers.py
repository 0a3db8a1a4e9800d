"""Step ``forward`` of the layers that the original's dictionaries describe.

Ours: ``sot_paddle.published``. Reference: the same part of a whole reference model, built from the
reference's own options. The whole model also gives the weights and their conversion.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import paddle
import torch

import sot_torch_ref
from align.cases.context import Context
from align.cases.kinds.case_kinds_calls import PublishedCase
from align.cases.planted_controls import judge
from align.cases.sides import paddle_side, torch_side
from align.judge.bounds import TOLERANCES
from align.judge.comparator import compare_mappings
from align.record.arrays import Arrays
from align.record.results import Comparison, StepResult
from align.weights import build_plan
from sot_paddle import published
from sot_torch_ref.features import Features
from sot_torch_ref.heads import HeadConfig, build_head

_DIM, _CLASSES, _SIZE, _SEED = 12, 5, 32, 13
_BERT = {
    "hidden_size": _DIM,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 8,
    "vocab_size": 10,
    "max_position_embeddings": 8,
    "head_dropout": 0.0,
}
_SOT = {"img_size": _SIZE, "embed_dim": _DIM, "depth": 1, "num_heads": 2, "mlp_ratio": 1.0}


def run(case: PublishedCase, dtype: str, context: Context) -> StepResult:
    """Compare what both layers make of the same random tokens (or images)."""
    torch.manual_seed(_SEED)
    with torch_side.default_dtype(dtype):
        whole, part, prefix = _hosts(case)
    rng = np.random.default_rng(_SEED)
    state = {name: _away_from_zero(value, rng) for name, value in whole.state_dict().items()}
    torch_side.load_state(whole, state)
    given = rng.normal(size=(3, 3, _SIZE, _SIZE) if prefix == "embed" else (4, 6, _DIM))
    model = "sot_tiny" if prefix == "embed" else "bert_base_mgcrp"
    plan = build_plan("sot_torch_ref", model, {n: v.shape for n, v in state.items()})
    weights = {
        name.partition(".")[2]: value
        for name, value in plan.apply(state).items()
        if name.startswith(f"{prefix}.")
    }
    with torch.no_grad():
        expected = _parts(part(torch.from_numpy(given)))
    reference = {name: value.numpy() for name, value in expected.items()}
    ours, ours_stamp = _ours(case, case.dictionary, weights, given, dtype)

    def compare(arrays: Arrays) -> list[Comparison]:
        return compare_mappings(arrays, reference, TOLERANCES["forward", dtype])

    louder, _ = _ours(case, case.dictionary, weights, 1.01 * given, dtype)
    controls = [judge("inputs 1 % larger", compare(louder), case.layer)]
    if case.fault is not None:
        faulty, _ = _ours(case, case.fault, weights, given, dtype)
        controls.append(judge(f"built from {dict(case.fault)}", compare(faulty), case.layer))
    stamps = {"ours": ours_stamp, "reference": torch_side.stamp(next(iter(expected.values())))}
    return StepResult(case.name, "forward", dtype, compare(ours), controls, stamps=stamps)


def _hosts(case: PublishedCase) -> tuple[torch.nn.Module, Callable, str]:
    """A whole reference model, the call of its part, and the name of the part in it."""
    if case.layer == "TokenEmbed":
        whole = sot_torch_ref.create_model("sot_tiny", _CLASSES, **_SOT, **case.options)
        return whole, lambda images: whole.embed(images)[0], "embed"
    whole = sot_torch_ref.create_model("bert_base_mgcrp", _CLASSES, **_BERT, **case.options)
    if case.layer == "Classifier":
        return whole, lambda x: whole.head(Features(x[:, 0], x[:, 1:], None))[0], "head"
    config = HeadConfig(**case.options, head_dropout=0.0)
    alone = build_head(config, hidden_size=_DIM, num_classes=_CLASSES, has_class_token=False)

    def words(x: torch.Tensor) -> torch.Tensor:
        alone.load_state_dict(whole.head.state_dict())
        return alone(Features(None, x, None))[0]

    return whole, words, "head"


def _away_from_zero(value: torch.Tensor, rng: np.random.Generator) -> np.ndarray:
    """Weights with biases that show."""
    array = value.numpy()
    if array.dtype != np.float64 or array.ndim > 1:
        return array
    return np.asarray(array + 0.1 * rng.uniform(size=array.shape))


def _parts(output: Any) -> dict[str, Any]:
    """Logits by name: two of them where the losses are summed."""
    outputs = output if isinstance(output, tuple) else (output,)
    return {f"output {index}": tensor for index, tensor in enumerate(outputs)}


def _ours(
    case: PublishedCase,
    dictionary: Mapping[str, Any],
    weights: Arrays,
    given: np.ndarray,
    dtype: str,
) -> tuple[Arrays, Mapping[str, Any]]:
    """Build the product's layer from a dictionary, load the weights and call it."""
    build = getattr(published, case.layer)
    with paddle_side.default_dtype(dtype), paddle.no_grad():
        if case.layer == "TokenEmbed":
            layer = build(dictionary, img_size=_SIZE, embed_dim=_DIM)
            inner = layer.tokens
        else:
            layer = build(dictionary, num_classes=_CLASSES, input_dim=_DIM)
            inner = layer.head
        paddle_side.load_state(inner, weights)
        layer.train()
        parts = _parts(layer(paddle.to_tensor(given)))
    arrays = {name: tensor.numpy() for name, tensor in parts.items()}
    return arrays, paddle_side.stamp(parts["output 0"])
