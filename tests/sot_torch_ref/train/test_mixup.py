"""A drawn mix by hand, and timm's own Mixup and CutMix with their draws replaced."""

import numpy as np
import pytest
import torch

from sot_torch_ref.train import mixup
from sot_torch_ref.train.uniform_draws import UniformDraws

B, K, HEIGHT, WIDTH = 4, 6, 7, 10
LABELS = torch.tensor([5, 0, 3, 0])


def pictures() -> torch.Tensor:
    generator = torch.Generator().manual_seed(2)
    return torch.randint(0, 256, (B, 3, HEIGHT, WIDTH), generator=generator, dtype=torch.uint8)


def inject(monkeypatch: pytest.MonkeyPatch, *, cutmix: bool, lam: float, center=(0, 0)) -> None:
    """Replace timm's draws: mixing on, the switch, the beta draw, the centre of the box."""
    uniform = iter([0.0, 0.0 if cutmix else 0.9])
    middle = iter(center)
    monkeypatch.setattr(np.random, "rand", lambda: next(uniform))
    monkeypatch.setattr(np.random, "beta", lambda a, b: lam)
    monkeypatch.setattr(np.random, "randint", lambda low, high, size=None: next(middle))


def timm_mixup(kind: str, **keys: object):
    from timm.data import mixup as timm_mixup

    return getattr(timm_mixup, kind)(
        mixup_alpha=0.8, cutmix_alpha=1.0, label_smoothing=0.1, num_classes=K, **keys
    )


@pytest.mark.parametrize("lam", [0.0, 0.3, 0.62537, 1.0])
@pytest.mark.parametrize("as_numpy", [True, False])
def test_uint8_mixup_is_timm_collate(monkeypatch, lam: float, as_numpy: bool) -> None:
    images = pictures()
    batch = [(x.numpy() if as_numpy else x, int(y)) for x, y in zip(images, LABELS, strict=True)]
    inject(monkeypatch, cutmix=False, lam=lam)
    mixed, targets = timm_mixup("FastCollateMixup")(batch)
    assert torch.equal(mixup.mixup_batch(images, lam), mixed)
    torch.testing.assert_close(mixup.mixed_targets(LABELS, K, lam), targets, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("lam", "center"),
    [(0.35, (3, 5)), (0.35, (0, 0)), (0.63, (6, 9)), (0.93, (2, 2)), (0.0, (3, 5))],
)
def test_cutmix_is_timm_collate(monkeypatch, lam: float, center: tuple[int, int]) -> None:
    """Where the sides are even: at odd ones timm 1.0.31 keeps a pixel that 0.3.4 lost."""
    images = torch.nn.functional.pad(pictures(), (0, 0, 0, 1))
    height, width = images.shape[2:]
    assert all(int(side * (1 - lam) ** 0.5) % 2 == 0 for side in (height, width))
    batch = [(x.numpy().copy(), int(y)) for x, y in zip(images, LABELS, strict=True)]
    inject(monkeypatch, cutmix=True, lam=lam, center=center)
    mixed, targets = timm_mixup("FastCollateMixup")(batch)
    box = mixup.cutmix_box(height, width, lam, center)
    share = mixup.corrected_lam(height, width, box)
    assert torch.equal(mixup.cutmix_batch(images, box), mixed)
    torch.testing.assert_close(mixup.mixed_targets(LABELS, K, share), targets, rtol=0, atol=0)
    inject(monkeypatch, cutmix=True, lam=lam, center=center)
    wide, _ = timm_mixup("Mixup")(images.float(), LABELS)
    assert torch.equal(mixup.cutmix_batch(images.float(), box), wide)


def test_float_mixup_is_timm(monkeypatch: pytest.MonkeyPatch) -> None:
    images = torch.randn(B, 3, HEIGHT, WIDTH)
    inject(monkeypatch, cutmix=False, lam=0.37)
    mixed, _ = timm_mixup("Mixup")(images.clone(), LABELS)
    torch.testing.assert_close(mixup.mixup_batch(images, 0.37), mixed, rtol=0, atol=0)


def test_a_drawn_mix_by_hand() -> None:
    """Kind, lam and centre in this order; Beta(1, 1) is uniform, Beta(a, a) symmetric."""
    draws = UniformDraws([0.0, 0.1, 0.75, 0.9, 0.45])  # CutMix of lam .75, row 6, column 4
    assert mixup.drawn_mix(draws, HEIGHT, WIDTH) == (1 - 8 / 70, (5, 7, 2, 6))
    assert mixup.drawn_mix(UniformDraws([0.0, 0.5, 0.5]), HEIGHT, WIDTH) == (0.5, None)
    assert mixup.drawn_mix(UniformDraws([0.2]), HEIGHT, WIDTH, prob=0.2) == (1.0, None)
    lam, box = mixup.drawn_mix(UniformDraws([0.0, 0.9]), HEIGHT, WIDTH, cutmix=0.0)
    assert box is None
    assert torch.distributions.Beta(0.8, 0.8).sample((20000,)).lt(lam).float().mean() == (
        pytest.approx(0.9, abs=0.01)
    )
