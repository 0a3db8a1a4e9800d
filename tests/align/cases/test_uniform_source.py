"""Both sides' draws from the same uniform numbers, and that they cannot run dry unseen."""

from __future__ import annotations

import numpy as np
import pytest

from align.cases.sides.uniform_source import (
    LENGTH,
    UniformGenerator,
    uniform_generator,
    uniform_numbers,
)
from sot_torch_ref.train.uniform_draws import UniformDraws


def test_both_sides_draw_the_same() -> None:
    values = uniform_numbers("mix", 42, 1, 3)
    ours, reference = UniformGenerator(values), UniformDraws(values)
    for _ in range(40):
        assert ours.random() == reference.unit()
        assert ours.uniform(0.08, 1.0) == reference.between(0.08, 1.0)
        assert ours.integers(7) == reference.whole(7)
        assert ours.integers(1, 4) == 1 + reference.whole(3)
        assert ours.permutation(3).tolist() == reference.order(3)
        assert ours.beta(0.8, 0.8) == pytest.approx(reference.beta(0.8), rel=1e-12)
        assert ours.standard_normal() == pytest.approx(float(reference.normal()), rel=1e-12)
        noise = ours.standard_normal((2, 3), dtype=np.float32)
        np.testing.assert_allclose(noise, reference.normal((2, 3)).float().numpy(), rtol=1e-6)
        assert noise.dtype == np.float32


def test_every_stream_and_place_has_its_own_numbers() -> None:
    places = [("mix", 1, 2, 3), ("erase", 1, 2, 3), ("mix", 2, 2, 3), ("mix", 1, 2, 4)]
    firsts = {uniform_generator(*place).random() for place in places}
    assert len(firsts) == len(places)
    assert firsts == {uniform_generator(*place).random() for place in places}


def test_an_empty_stream_is_an_error() -> None:
    draws = uniform_generator("mix", 0, 0, 0)
    draws.standard_normal((LENGTH,))
    with pytest.raises(ValueError, match=f"{LENGTH + 1} uniform numbers asked for"):
        draws.random()
