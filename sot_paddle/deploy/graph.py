"""A model as a graph of Paddle: traced with open axes, saved, loaded, run.

PADDLE: a saved graph holds a Python number (``x + 1e-5``) as float32, in float64 models too.
Exports are float32.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import paddle
from paddle import nn
from paddle.static import InputSpec

from sot_paddle.deploy.export_form import export_form
from sot_paddle.versions import require

JSON, PARAMETERS = "model.json", "model.pdiparams"
"""The two files of a saved graph."""

Runner = Callable[[Mapping[str, np.ndarray]], np.ndarray]
"""Arrays by input name, at least those of the graph, to logits (B, K) float32; of a model for
questions (B, 2, S), start and end."""


class _Traced(nn.Layer):
    """A model behind one list of inputs.

    PADDLE: `not_to_static` has the model's Python run as it is, with lengths of -1; rewritten by
    Paddle's compiler it loses keyword arguments of decorated functions and checks that raise.
    """

    def __init__(self, model: nn.Layer, names: Sequence[str]) -> None:
        super().__init__()
        self.model, self._names = model, tuple(names)

    @paddle.jit.not_to_static
    def _logits(self, inputs: Sequence[paddle.Tensor]) -> paddle.Tensor:
        return _as_one(self.model(**dict(zip(self._names, inputs, strict=True))))

    def forward(self, inputs: Sequence[paddle.Tensor]) -> paddle.Tensor:
        """Logits (B, K), or (B, 2, S)."""
        return self._logits(inputs)


def _as_one(outputs: paddle.Tensor | tuple[paddle.Tensor, ...]) -> paddle.Tensor:
    return paddle.stack(outputs, axis=1) if isinstance(outputs, tuple) else outputs


def save_graph(model: nn.Layer, example: Mapping[str, np.ndarray], folder: Path) -> None:
    """Trace a model and write ``model.json`` and ``model.pdiparams`` (``paddle.jit.save``).

    Args:
        model: in evaluation mode, float32.
        example: the graph's inputs, in its order: (B, S) integers with both axes open, images
            with the batch axis open.
        folder: exists.

    Raises:
        ValueError: a layer computes with a length that is not known yet; Paddle before 3.0.
    """
    require("3.0", "an exported graph")
    specs = [_spec(name, array) for name, array in example.items()]
    with export_form(model), warnings.catch_warnings():
        # PADDLE: full_like asks a traced tensor for its device, of which there is none
        warnings.filterwarnings("ignore", message="Tensor do not have 'place' interface")
        traced = _Traced(model, list(example))
        try:
            paddle.jit.save(traced, str(folder / "model"), input_spec=[specs])
        except (ValueError, TypeError, RuntimeError, AssertionError) as error:
            said = [line.strip() for line in str(error).splitlines() if line.strip()]
            reason = next((line for line in said if " -1" in line), said[-1])
            raise ValueError(
                f"this model cannot be traced with open axes: {reason}; what depends on a length "
                "of -1 needs another form (sot_paddle/deploy/export_form.py)"
            ) from error


def _spec(name: str, array: np.ndarray) -> InputSpec:
    shape = [None] * array.ndim if array.ndim == 2 else [None, *array.shape[1:]]
    return InputSpec(shape, str(array.dtype), name, stop_gradient=True)


def load_graph(folder: Path, names: Sequence[str]) -> Runner:
    """Load what `save_graph` wrote; the names are those of the inputs in the graph's order.

    Raises:
        ValueError: the files are not there or damaged.
    """
    for name in (JSON, PARAMETERS):
        if not (folder / name).is_file():
            raise ValueError(f"{folder} has no {name}: export with --formats jit")
    try:
        graph = paddle.jit.load(str(folder / "model"))
    except (ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())[-200:]
        raise ValueError(f"{folder / JSON} cannot be loaded: {reason}") from error

    def run(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        return graph(*(arrays[name] for name in names)).numpy()

    return run


def run_model(model: nn.Layer, names: Sequence[str]) -> Runner:
    """Run a model itself, in evaluation mode, with inputs of these names."""

    @paddle.no_grad()
    def run(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        return _as_one(model(**{name: paddle.to_tensor(arrays[name]) for name in names})).numpy()

    return run
