"""The form in which a model is traced: the same weights, in operators that every exporter knows.

A model is traced with an open batch axis, and for texts an open token axis: their lengths are -1 in
a graph. What a layer does with those lengths has to hold for all of them. Most layers are written
that way; the few that are not, for the sake of speed, have another forward here, which computes the
same and is in place while the model is traced and at no other time.

Shape legend: B samples (or windows), N tokens, C channels, h heads, d = C / h, w windows.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping

import paddle
from paddle import nn
from paddle.nn import functional as F

from sot_paddle.backbones.layers import Attention
from sot_paddle.backbones.swin_blocks import WindowAttention, relative_position_index


def attend(layer: Attention, x: paddle.Tensor, bias: paddle.Tensor | None = None) -> paddle.Tensor:
    """`Attention` with the heads on an axis of their own, where training lays them along the batch.

    Args:
        layer: gives the weights; nothing is dropped.
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
        layer: gives the weights.
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
    """Give a model's layers their forms for export; outside of the block it is as it was.

    Raises:
        ValueError: it is in training mode, in which it would drop activations.
    """
    if model.training:
        raise ValueError("a model is exported in evaluation mode: call eval() first")
    changed = [layer for layer in model.sublayers() if type(layer) in FORMS or hasattr(layer, OPEN)]
    for layer in changed:
        form = FORMS.get(type(layer))
        layer.forward = getattr(layer, OPEN) if form is None else functools.partial(form, layer)
    try:
        yield model
    finally:
        for layer in changed:
            del layer.forward
