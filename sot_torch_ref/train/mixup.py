"""Mixup and CutMix of a batch with its own reverse, as functions of the draws.

Legend: B samples, C channels, H and W pixels, K classes. A box is (top, bottom, left, right) in
pixels, ends excluded. ``lam`` is the share of the sample itself; its partner is sample B - 1 - i.

Images are float, or uint8 as in the published recipe, which mixes them in the collate function
and rounds to whole numbers, half to even.

Source: specs A.9; timm 0.3.4, Mixup and FastCollateMixup.
"""

import math

import torch

from sot_torch_ref.train.losses import smooth_one_hot
from sot_torch_ref.train.uniform_draws import UniformDraws

Box = tuple[int, int, int, int]


def _require_batch(images: torch.Tensor) -> None:
    if images.ndim != 4 or len(images) % 2:
        raise ValueError(
            "mixing needs images (B, C, H, W) with an even B, got shape "
            f"{tuple(images.shape)}; use an even batch size"
        )


def _require_lam(lam: float) -> None:
    if not 0.0 <= lam <= 1.0:
        raise ValueError(f"lam must be in [0, 1], got {lam!r}")


def mixup_batch(images: torch.Tensor, lam: float) -> torch.Tensor:
    """x_i <- lam x_i + (1 - lam) x_{B-1-i}.

    Args:
        images: (B, C, H, W), float or uint8, B even.
        lam: In [0, 1].

    Returns:
        Same shape and dtype; uint8 is mixed in float32 and rounded half to even.

    Raises:
        ValueError: An odd batch, or lam out of range.
    """
    _require_batch(images)
    _require_lam(lam)
    if images.dtype != torch.uint8:
        return images * lam + images.flip(0) * (1.0 - lam)
    wide = images.to(torch.float32)
    return (wide * lam + wide.flip(0) * (1.0 - lam)).round().to(torch.uint8)


def cutmix_batch(images: torch.Tensor, box: Box) -> torch.Tensor:
    """Replace the box of every sample by the same box of its partner.

    Args:
        images: (B, C, H, W), any dtype, B even.
        box: See ``cutmix_box``.

    Returns:
        Same shape and dtype.

    Raises:
        ValueError: An odd batch, or a box outside the image.
    """
    _require_batch(images)
    top, bottom, left, right = box
    height, width = images.shape[2:]
    if not (0 <= top <= bottom <= height and 0 <= left <= right <= width):
        raise ValueError(f"the box {box} does not lie in an image of {height} x {width} pixels")
    mixed = images.clone()
    mixed[:, :, top:bottom, left:right] = images.flip(0)[:, :, top:bottom, left:right]
    return mixed


def cutmix_box(height: int, width: int, lam: float, center: tuple[int, int]) -> Box:
    """Box of sides int(H sqrt(1 - lam)) and int(W sqrt(1 - lam)) around a centre, clipped.

    Half a side, rounded down, goes to either side of the centre: an odd side loses a pixel. So it
    was in timm 0.3.4, with which the models were published; later releases keep the pixel.

    Args:
        height, width: Of the image, in pixels.
        lam: Draw of the beta distribution, in [0, 1].
        center: Draws (row, column), 0 <= row < H and 0 <= column < W.

    Returns:
        The box.
    """
    _require_lam(lam)
    ratio = math.sqrt(1.0 - lam)
    ends = []
    for size, middle in zip((height, width), center, strict=True):
        half = int(size * ratio) // 2
        ends += [max(0, middle - half), min(size, middle + half)]
    return ends[0], ends[1], ends[2], ends[3]


def drawn_mix(
    draws: UniformDraws,
    height: int,
    width: int,
    *,
    mixup: float = 0.8,
    cutmix: float = 1.0,
    prob: float = 1.0,
    switch_prob: float = 0.5,
) -> tuple[float, Box | None]:
    """How a batch is mixed.

    The draws, in this order: whether it is mixed; where both kinds are on, whether by CutMix; lam;
    for CutMix the centre's row and column.

    Args:
        draws: Of this batch.
        height, width: Of the images, in pixels.
        mixup, cutmix: alpha of the kind's Beta(alpha, alpha), 0 switches it off.
        prob: Probability that the batch is mixed.
        switch_prob: Probability of CutMix where both are on.

    Returns:
        lam, with CutMix the corrected one, and the box, None for mixup.
    """
    if not draws.chance(prob):
        return 1.0, None
    cut = draws.chance(switch_prob) if mixup and cutmix else bool(cutmix)
    lam = draws.beta(cutmix if cut else mixup)
    if not cut:
        return lam, None
    center = draws.whole(height), draws.whole(width)
    box = cutmix_box(height, width, lam, center)
    return corrected_lam(height, width, box), box


def corrected_lam(height: int, width: int, box: Box) -> float:
    """The share of the image outside the box: 1 - area / (H W)."""
    top, bottom, left, right = box
    return 1.0 - (bottom - top) * (right - left) / float(height * width)


def mixed_targets(
    labels: torch.Tensor, num_classes: int, lam: float, smoothing: float = 0.1
) -> torch.Tensor:
    """Soft targets: lam y_i + (1 - lam) y_{B-1-i} on smoothed one-hot rows y.

    With CutMix, lam is the corrected one (``corrected_lam``).

    Args:
        labels: (B,), integers from 0 to K - 1.
        num_classes: Number K of classes.
        lam: In [0, 1]; 1 = no mixing.
        smoothing: Of ``smooth_one_hot``.

    Returns:
        (B, K), in torch's default dtype; the rows sum to 1.
    """
    _require_lam(lam)
    rows = smooth_one_hot(labels, num_classes, smoothing)
    return rows * lam + rows.flip(0) * (1.0 - lam)
