"""What older versions of Paddle take instead, run on this one: both ways agree."""

from __future__ import annotations

import paddle
import pytest
from paddle.base import core, framework

from sot_paddle import versions
from sot_paddle.ops import build


class Scaled(paddle.nn.Layer):
    """Calls itself once more, with a keyword argument."""

    def forward(self, x, *, factor=1.0, again=False):
        return self(x, factor=2.0 * factor) if again else factor * x


@pytest.fixture(params=[versions.PADDLE, (3, 0), (2, 6)], ids=str)
def version(request, monkeypatch):
    monkeypatch.setattr(versions, "PADDLE", request.param)


def test_hooks_see_and_change_arguments_keywords_and_output(version):
    seen = []

    def before(layer, args, kwargs):
        return args, {**kwargs, "factor": kwargs.get("factor", 1.0) + 1.0}

    def after(layer, args, kwargs, output):
        seen.append((kwargs["factor"], kwargs.get("again", False), output.item()))
        return output + 100.0

    layer = Scaled()
    removers = versions.hook_calls(layer, before, after)
    assert layer(paddle.to_tensor(3.0), factor=3.0, again=True).item() == 227.0
    assert seen == [(9.0, False, 27.0), (4.0, True, 127.0)]
    for remove in removers:
        remove()
    assert layer(paddle.to_tensor(3.0), factor=3.0).item() == 9.0


def test_mixed_precision_is_seen(version, monkeypatch):
    assert not versions.is_autocast_enabled()
    tracer = framework._dygraph_tracer()  # auto_cast itself leaves it as it is on the CPU
    monkeypatch.setattr(tracer, "_amp_level", core.AmpLevel.O1)
    assert versions.is_autocast_enabled()


def test_what_a_version_cannot_do_is_refused_by_name(monkeypatch):
    versions.require("3.0", "an exported graph")
    monkeypatch.setattr(versions, "PADDLE", (2, 6))
    with pytest.raises(ValueError, match=r"an exported graph needs Paddle 3\.0, this is"):
        versions.require("3.0", "an exported graph")


def test_native_operators_stay_out_of_an_older_paddle(monkeypatch):
    monkeypatch.setattr(paddle, "__version__", "3.1.1")
    assert build._load() == "they need Paddle 3.2, this is 3.1.1"


@pytest.mark.parametrize(
    ("version", "number"), [("3.2.2", (3, 2)), ("2.6.2", (2, 6)), ("0.0.0", (99, 99))]
)
def test_a_development_build_is_later_than_every_release(version, number):
    assert versions.number_of(version) == number
