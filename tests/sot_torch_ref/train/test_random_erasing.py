"""Erasing one rectangle by hand; test_uniform_draws.py holds the draws against timm."""

import torch

from sot_torch_ref.train.random_erasing import erase


def test_erase_by_hand() -> None:
    image, noise = torch.zeros(2, 3, 4), torch.arange(1.0, 9.0).reshape(2, 2, 2)
    erased = erase(image, (1, 2, 2, 2), noise)
    assert erased[0].tolist() == [[0, 0, 0, 0], [0, 0, 1, 2], [0, 0, 3, 4]]
    assert erased[1].tolist() == [[0, 0, 0, 0], [0, 0, 5, 6], [0, 0, 7, 8]]
    assert not image.any()
