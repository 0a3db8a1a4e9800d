"""Random erasing of a rectangle, as functions of the draws.

Legend: C channels, H and W pixels. A box is (top, left, height, width) in pixels.

Source: specs A.9 (mode "pixel", one box); timm 0.3.4, RandomErasing.
"""

import math

import torch

from sot_torch_ref.train.uniform_draws import UniformDraws

ErasedBox = tuple[int, int, int, int]
ATTEMPTS = 10
AREA = (0.02, 1.0 / 3.0)
LOG_ASPECT = (math.log(0.3), math.log(1.0 / 0.3))


def erased_size(
    height: int, width: int, area_fraction: float, aspect: float
) -> tuple[int, int] | None:
    """Height and width of the rectangle of one attempt.

    Args:
        height, width: Of the image, in pixels.
        area_fraction: Draw, uniform in [0.02, 1/3].
        aspect: exp of a draw that is uniform between the logarithms of 0.3 and 1 / 0.3;
            height / width of the rectangle.

    Returns:
        round(sqrt(area aspect)) and round(sqrt(area / aspect)), half to even, or None if they do
        not both stay below the image's own (the attempt fails; ten are made).
    """
    area = area_fraction * height * width
    tall, wide = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
    return (tall, wide) if tall < height and wide < width else None


def drawn_boxes(
    draws: UniformDraws,
    shape: tuple[int, int, int],
    *,
    prob: float = 0.25,
    mode: str = "pixel",
    count: int = 1,
) -> list[tuple[ErasedBox, torch.Tensor]]:
    """The rectangles of one image and what they are filled with.

    The draws, in this order: whether the image is erased; how many rectangles, where there may be
    several; for each attempt at a rectangle (ten at most) its area and shape, and where it fits its
    row, its column and its noise.

    Args:
        draws: Of this image.
        shape: (C, H, W).
        prob: Probability that the image is erased.
        mode: ``pixel`` a number for each place, ``rand`` one for each channel, ``const`` zeros.
        count: Most rectangles; they share the area.

    Returns:
        Boxes with noise (C, height, width) in torch's default dtype; mostly none.
    """
    if not draws.chance(prob):
        return []
    channels, height, width = shape
    found: list[tuple[ErasedBox, torch.Tensor]] = []
    number = 1 + draws.whole(count) if count > 1 else 1
    for _ in range(number):
        for _ in range(ATTEMPTS):
            share = draws.between(*AREA) / number
            size = erased_size(height, width, share, math.exp(draws.between(*LOG_ASPECT)))
            if size is not None:
                corner = draws.whole(height - size[0] + 1), draws.whole(width - size[1] + 1)
                found.append(((*corner, *size), _noise(draws, mode, (channels, *size))))
                break
    return found


def _noise(draws: UniformDraws, mode: str, shape: tuple[int, int, int]) -> torch.Tensor:
    if mode == "const":
        return torch.zeros(shape)
    drawn = draws.normal(shape if mode == "pixel" else (shape[0], 1, 1))
    return drawn.to(torch.get_default_dtype()).expand(shape)


def erase(image: torch.Tensor, box: ErasedBox, noise: torch.Tensor) -> torch.Tensor:
    """Put noise in place of a rectangle of a normalised image.

    Args:
        image: (C, H, W), float.
        box: (top, left, height, width).
        noise: (C, height, width), draws of N(0, 1).

    Returns:
        (C, H, W), the input is left alone.

    Raises:
        ValueError: A box outside the image, or noise of another shape.
    """
    top, left, height, width = box
    rows, columns = image.shape[1:]
    if min(box) < 0 or top + height > rows or left + width > columns:
        raise ValueError(f"the box {box} does not lie in an image of {rows} x {columns} pixels")
    if tuple(noise.shape) != (len(image), height, width):
        raise ValueError(
            f"noise must have shape {(len(image), height, width)}, got {tuple(noise.shape)}"
        )
    erased = image.clone()
    erased[:, top : top + height, left : left + width] = noise
    return erased
