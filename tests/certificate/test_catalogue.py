"""The catalogue: complete, well formed, and every entry changes its scene."""

from __future__ import annotations

import hashlib
import re

import pytest

from align.record.results import STEPS
from tests.certificate import faults, scenes
from tests.certificate.faults import AREAS, read_rows
from tests.certificate.planting import plant

NAMES = [fault.name for fault in faults.FAULTS]


def test_names_and_their_order_stay() -> None:
    """Who renames, drops or adds a fault changes which are held out: figures no longer compare."""
    assert len(set(NAMES)) == len(NAMES) == 219
    assert hashlib.sha256("\n".join(NAMES).encode()).hexdigest().startswith("0953194256e51671")
    assert sum(fault.held_out for fault in faults.FAULTS) == 69


def test_a_place_is_a_place() -> None:
    tied = faults.find("tied_weights_untied")
    assert [tied.is_at(place) for place in ("encoder.words", "project", "norm")] == [
        True,
        True,
        False,
    ]
    assert tied.is_named_in("the layer project is missing")
    assert not tied.is_named_in("the layer norm is missing")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ('["bert forward norm", "x", "nowhere:f", "a", "b"]', "no module 'nowhere'; expected .* m"),
        ('["bert forward norm", "x", "explode", "norm"]', "cannot plant by 'explode'; .* frozen"),
    ],
)
def test_a_row_that_plants_nothing_known_is_refused(tmp_path, row, message) -> None:
    path = tmp_path / "rows.toml"
    path.write_text(f'area = "model"\n[modules]\nm = "math"\n[faults]\na_name = {row}\n')
    with pytest.raises(ValueError, match=f"a_name: {message}"):
        [plant(fault, scenes.build("segmenter", 0)) for fault in read_rows(path)]


def test_scenes_areas_and_steps_are_known() -> None:
    used = [(fault.scene, fault.area, fault.step) for fault in faults.FAULTS]
    of_scenes, areas, steps = map(set, zip(*used, strict=True))
    assert of_scenes == set(scenes.SCENES)
    assert areas == set(AREAS)
    assert steps <= set(STEPS)


def test_every_cause_is_a_real_demand() -> None:
    """A pattern that fits anything would explain anything."""
    nothing = ("", "504 of 504 elements are out of tolerance", "differs by 2.38e-03")
    fit = [f.name for f in faults.FAULTS if any(re.search(f.cause, text) for text in nothing)]
    assert fit == []


def test_selection_by_name_pattern_and_area() -> None:
    assert [f.name for f in faults.select(["gelu_tanh"])] == ["gelu_tanh"]
    assert {f.area for f in faults.select(["head"])} == {"head"}
    assert len(faults.select(["attention_mask_*"])) == 3
    assert faults.select() == list(faults.FAULTS)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValueError, match=r"no fault matches 'nothing_\*'"):
        faults.select(["nothing_*"])
    with pytest.raises(ValueError, match="near: gelu_tanh"):
        faults.find("gelu_tan")
    with pytest.raises(ValueError, match="expected one of distilbert"):
        scenes.build("nothing", 0)


@pytest.mark.parametrize("fault", faults.FAULTS, ids=NAMES)
def test_every_fault_plants_something(fault, built) -> None:
    """Its edits find their text in the source; everything else makes another scene."""
    scene = built(fault.scene)
    planted = plant(fault, scene)
    assert planted != scene
    for edit in planted.edits:
        function = edit.function()
        before = function.__code__
        with edit.applied():
            assert function.__code__.co_code != before.co_code or _constants(
                function.__code__
            ) != _constants(before)
        assert function.__code__ is before


def _constants(code) -> str:
    return repr([code.co_consts, code.co_names])


@pytest.fixture(scope="module")
def built():
    held: dict = {}

    def build(name: str):
        if name not in held:
            held[name] = scenes.build(name, 0)
        return held[name]

    return build
