"""Where in an image a class has its evidence: integrated gradients on the word tokens.

The class token's score depends on the words only through attention, in every block, and near the
head each token has long mixed with all others. So the path runs at the *input* of the blocks, on
the output of the token embedding, where a token still belongs to its place in the image: from
tokens that are all the image's mean token (x') to the real ones (x),

    evidence_n = (x_n - x'_n) . mean over t of d margin / d x_n at x' + t (x - x'),

with t the middle of ``steps`` equal intervals. Position encodings come after this place and stay.
The sum over n is the margin's change from x' to x (but for the finite number of steps), and the
evidence of a sum of scores is the sum of theirs. For a linear head on the mean token it is
``w . (x_n - x') / N``.

Grad-CAM averages a gradient at one point over all places, which suits a linear head on the mean
token. Attention and a second-order head weigh every place by its own content, and where the score
saturates a single gradient is small.

Source: Sundararajan et al., Axiomatic attribution for deep networks (2017).
Shape legend: N tokens, C channels, K classes, g x g = N cells of a map, b points of the path.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import paddle
from paddle import nn

from sot_paddle.explain.parts import Part, PartEvidence, contrast, part_logits, parts_of
from sot_paddle.train.evaluation import evaluation_mode

STEPS = 16
"""Points of the path; 8 and 64 gave the same faithfulness."""
_AT_ONCE = 8


def explain_image(model: nn.Layer, image: np.ndarray) -> tuple[PartEvidence, ...]:
    """Evidence map of every part of the score for the class that a model predicts of an image.

    Args:
        model: an image model of the registry; it is used in evaluation mode.
        image: (in_chans, H, W), normalised.

    Returns:
        The parts; their evidence is (g, g) float64, row-major as the image.

    Raises:
        ValueError: an output or gradient that is not finite, or a head without known parts.
    """
    parts = parts_of(model)
    with evaluation_mode(model, gradients=True):
        with paddle.no_grad():
            _, taps = model(_tensor(image[None], model), return_taps=True)
        logits = [each[0] for each in part_logits(parts, taps)]
        tokens = taps["embed"][0].astype("float64").numpy()  # (N, C)
        maps = token_evidence(model, tokens, parts, int(logits[-1].argmax()))
    side = math.isqrt(len(tokens))
    return tuple(
        PartEvidence(part, scores, evidence.reshape(side, side))
        for part, scores, evidence in zip(parts, logits, maps, strict=True)
    )


def token_evidence(
    model: nn.Layer, tokens: np.ndarray, parts: Sequence[Part], target: int, *, steps: int = STEPS
) -> list[np.ndarray]:
    """Integrated gradients of each part's margin with respect to the words of one image.

    Args:
        tokens: (N, C), output of its token embedding.

    Returns:
        (N,) float64 for each part, signed.

    Raises:
        ValueError: a gradient that is not finite.
    """
    mean = tokens.mean(axis=0)  # (C,)
    change = tokens - mean
    taps = {name: np.zeros(len(tokens)) for part in parts for name in part.taps}
    if np.any(change):  # a blank image has no evidence anywhere, and may have no gradient
        for first in range(0, steps, _AT_ONCE):
            middles = (np.arange(first, min(first + _AT_ONCE, steps)) + 0.5) / steps
            path = mean + middles[:, None, None] * change  # (b, N, C)
            for name, gradient in _gradients(model, path, taps, target).items():
                taps[name] += (gradient * change).sum(axis=(0, 2)) / steps
    maps = [sum(taps[name] for name in part.taps) for part in parts]
    if not all(np.isfinite(each).all() for each in maps):
        raise ValueError(
            "the gradient of the score is not a finite number: the power norm has none where the "
            "tokens' covariance vanishes"
        )
    return maps


def _gradients(
    model: nn.Layer, path: np.ndarray, names: Sequence[str], target: int
) -> dict[str, np.ndarray]:
    """Gradient (b, N, C) of the margin in each tap, at given outputs (b, N, C) of the embedding."""
    words = _tensor(path, model)
    words.stop_gradient = False
    model.embed.forward = lambda tokens, *_: tokens  # takes (b, N, C) in the place of images
    try:
        _, taps = model(words, return_taps=True)
    finally:
        del model.embed.forward
    gradients = {}
    for name in names:
        logits = taps[name]
        weights = contrast(target, logits.shape[1])
        margin = (logits * paddle.to_tensor(weights, dtype=logits.dtype)).sum()
        (gradient,) = paddle.grad(margin, words, retain_graph=True)
        gradients[name] = gradient.astype("float64").numpy()
    return gradients


def _tensor(array: np.ndarray, model: nn.Layer) -> paddle.Tensor:
    return paddle.to_tensor(array, dtype=model.norm.weight.dtype)
