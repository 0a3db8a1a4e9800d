"""Erasing one rectangle by hand; test_uniform_draws.py holds the draws against timm."""

import pytest
import torch

from sot_torch_ref.train.random_erasing import erase

HEIGHT, WIDTH = 12, 17


def test_erase_by_hand() -> None:
    image, noise = torch.zeros(2, 3, 4), torch.arange(1.0, 9.0).reshape(2, 2, 2)
    erased = erase(image, (1, 2, 2, 2), noise)
    assert erased[0].tolist() == [[0, 0, 0, 0], [0, 0, 1, 2], [0, 0, 3, 4]]
    assert erased[1].tolist() == [[0, 0, 0, 0], [0, 0, 5, 6], [0, 0, 7, 8]]
    assert not image.any()


def test_refusals() -> None:
    image = torch.zeros(3, HEIGHT, WIDTH)
    with pytest.raises(ValueError, match="does not lie in an image of 12 x 17 pixels"):
        erase(image, (10, 0, 3, 2), torch.zeros(3, 3, 2))
    with pytest.raises(ValueError, match=r"noise must have shape \(3, 3, 2\), got \(3, 2, 3\)"):
        erase(image, (0, 0, 3, 2), torch.zeros(3, 2, 3))
