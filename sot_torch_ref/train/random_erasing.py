"""Random erasing of a rectangle, as functions of the draws.

Legend: C channels, H and W pixels. A box is (top, left, height, width) in pixels.

Source: specs A.9 (mode "pixel", one box); timm RandomErasing.
"""

import math

import torch

ErasedBox = tuple[int, int, int, int]


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
