"""A model as a graph of Paddle: traced with open axes, saved, loaded, run.

A model is traced with an open batch axis, and for texts an open token axis: their lengths are -1 in
a graph. What a layer does with those lengths has to hold for all of them. Most layers are written
that way; the few that are not, for the sake of speed, have another forward here, which computes the
same and is in place while the model is traced and at no other time.

PADDLE: a saved graph holds a Python number (``x + 1e-5``) as float32, in float64 models too.
Exports are float32.

Shape legend: B samples (or windows), N tokens, C channels, h heads, d = C / h, w windows.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional as F
from paddle.static import InputSpec

from sot_paddle.backbones.layers import Attention
from sot_paddle.backbones.swin_blocks import WindowAttention, relative_position_index
from sot_paddle.versions import require


def attend(layer: Attention, x: paddle.Tensor, bias: paddle.Tensor | None = None) -> paddle.Tensor:
    """`Attention` with the heads on an axis of their own, where training lays them along the batch.

    Args:
        x: (B, N, C); N is known where w is larger than 1.
        bias: (h, w, N, N), as for `Attention.forward`; w may be the open B.

    Returns:
        (B, N, C).
    """
    _, length, dim = x.shape
    parts = layer.qkv(x).reshape([0, 0, 3, layer.num_heads, layer.head_dim])  # 0: as it is
    q, k, v = parts.transpose([2, 0, 3, 1, 4]).unbind(0)  # (B, h, N, d) each
    scores = paddle.matmul(q * layer.scale, k, transpose_y=True)  # (B, h, N, N)
    if bias is not None:
        of_windows = bias.transpose([1, 0, 2, 3])  # (w, h, N, N)
        if of_windows.shape[0] == -1:
            scores = scores + of_windows
        else:
            grouped = scores.reshape([-1, *of_windows.shape]) + of_windows  # (B / w, w, h, N, N)
            scores = grouped.reshape([-1, layer.num_heads, length, length])
    heads = paddle.matmul(F.softmax(scores, axis=-1), v)  # (B, h, N, d)
    return layer.proj(heads.transpose([0, 2, 1, 3]).reshape([0, 0, dim]))


def attend_in_windows(layer: WindowAttention, x: paddle.Tensor) -> paddle.Tensor:
    """`WindowAttention` with the places in its table of biases as a constant of the graph.

    Args:
        x: (B windows, w^2, C).

    Returns:
        The same shape.
    """
    places = relative_position_index(layer.window).reshape(-1)
    bias = paddle.index_select(layer.relative_position_bias_table, paddle.to_tensor(places))
    bias = bias.reshape([layer.area, layer.area, -1]).transpose([2, 0, 1]).unsqueeze(1)
    if layer.shift_mask is not None:
        bias = bias + layer.shift_mask  # (h, windows, w^2, w^2)
    return attend(layer, x, bias)


FORMS: Mapping[type[nn.Layer], Callable[..., paddle.Tensor]] = {
    Attention: attend,
    WindowAttention: attend_in_windows,
}
"""Layer -> its forward in a traced graph; further layers have an `open_forward` of their own."""


OPEN = "open_forward"
"""Method of a layer whose forward needs lengths: the same without them."""


@contextlib.contextmanager
def export_form(model: nn.Layer) -> Iterator[nn.Layer]:
    """Give a model's layers their forms for export; outside of the block it is as it was."""
    changed = [layer for layer in model.sublayers() if type(layer) in FORMS or hasattr(layer, OPEN)]
    for layer in changed:
        form = FORMS.get(type(layer))
        layer.forward = getattr(layer, OPEN) if form is None else functools.partial(form, layer)
    try:
        yield model
    finally:
        for layer in changed:
            del layer.forward


JSON, PARAMETERS = "model.json", "model.pdiparams"
"""The two files of a saved graph."""

Runner = Callable[[Mapping[str, np.ndarray]], np.ndarray]
"""Arrays by input name, at least those of the graph, to logits (B, K) float32."""


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
        return self.model(**dict(zip(self._names, inputs, strict=True)))

    def forward(self, inputs: Sequence[paddle.Tensor]) -> paddle.Tensor:
        """Logits (B, K)."""
        return self._logits(inputs)


def save_graph(model: nn.Layer, example: Mapping[str, np.ndarray], folder: Path) -> None:
    """Trace a model and write ``model.json`` and ``model.pdiparams`` (``paddle.jit.save``).

    Args:
        model: in evaluation mode, float32.
        example: the graph's inputs, in its order: (B, S) integers with both axes open, images
            with the batch axis open.

    Raises:
        ValueError: a layer computes with a length that is not known yet; Paddle before 3.0.
    """
    require("3.0", "an exported graph")
    specs = []
    for name, array in example.items():
        shape = [None] * array.ndim if array.ndim == 2 else [None, *array.shape[1:]]
        specs.append(InputSpec(shape, str(array.dtype), name, stop_gradient=True))
    with export_form(model), warnings.catch_warnings():
        # PADDLE: full_like asks a traced tensor for its device, of which there is none
        warnings.filterwarnings("ignore", message="Tensor do not have 'place' interface")
        traced = _Traced(model, list(example))
        try:
            paddle.jit.save(traced, str(folder / "model"), input_spec=[specs])
        except (ValueError, TypeError, RuntimeError, AssertionError) as error:
            reason = str(error).strip().splitlines()[-1].strip()
            raise ValueError(
                f"this model cannot be traced with open axes: {reason}; what depends on a length "
                "of -1 needs another form (`export_form` in sot_paddle/deploy/graph.py)"
            ) from error


def load_graph(folder: Path, names: Sequence[str]) -> Runner:
    """Load what `save_graph` wrote; the names are those of the inputs in the graph's order."""
    graph = paddle.jit.load(str(folder / "model"))

    def run(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        return graph(*(arrays[name] for name in names)).numpy()

    return run


def run_model(model: nn.Layer, names: Sequence[str]) -> Runner:
    """Run a model itself, in evaluation mode, with inputs of these names."""

    @paddle.no_grad()
    def run(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        return model(**{name: paddle.to_tensor(arrays[name]) for name in names}).numpy()

    return run
