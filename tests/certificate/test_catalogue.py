"""The catalogue: complete, well formed, and every entry changes its scene."""

from __future__ import annotations

import collections
import hashlib
import re

import pytest

from align.record.results import STEPS
from tests.certificate import faults, scenes
from tests.certificate.faults import ANYWHERE, AREAS, read_rows
from tests.certificate.planting import plant

NAMES = [fault.name for fault in faults.FAULTS]


def test_it_covers_every_area() -> None:
    counts = collections.Counter(fault.area for fault in faults.FAULTS)
    assert set(counts) == set(AREAS)
    assert min(counts.values()) >= 8


def test_names_and_their_order_stay() -> None:
    """Who renames, drops or adds a fault changes which are held out: figures no longer compare."""
    assert len(set(NAMES)) == len(NAMES) == 219
    assert hashlib.sha256("\n".join(NAMES).encode()).hexdigest().startswith("0953194256e51671")
    assert all(re.fullmatch(r"[a-z][a-z0-9_]+", name) for name in NAMES)


def test_a_third_is_held_out_by_a_hash_of_the_name() -> None:
    held = [fault.name for fault in faults.FAULTS if fault.held_out]
    assert len(held) == 69
    assert {"gelu_tanh", "decay_on_vectors"} <= set(held)
    assert "tied_weights_untied" not in held


def test_a_place_is_a_place() -> None:
    anywhere = [fault.name for fault in faults.FAULTS if fault.place == ANYWHERE]
    assert anywhere == [
        "gradients_zero_instead_of_none",
        "converted_rounded_to_float16",
        "converted_rounded_to_bfloat16",
    ]
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


def test_every_scene_exists_and_is_used() -> None:
    used = {fault.scene for fault in faults.FAULTS}
    assert used == set(scenes.SCENES)


def test_every_step_is_one_of_the_suite() -> None:
    assert {fault.step for fault in faults.FAULTS} <= set(STEPS)


@pytest.mark.parametrize("fault", faults.FAULTS, ids=NAMES)
def test_every_cause_is_a_real_demand(fault) -> None:
    """A pattern that fits anything would explain anything."""
    pattern = re.compile(fault.cause)
    assert fault.place
    for nothing in ("", "504 of 504 elements are out of tolerance", "differs by 2.38e-03"):
        assert not pattern.search(nothing), nothing


@pytest.mark.parametrize("name", ["distilbert", "resnet", "segmenter", "images", "cosine"])
def test_a_scene_changes_with_its_seed_and_repeats_itself(name: str) -> None:
    first, again, other = (scenes.build(name, seed) for seed in (3, 3, 4))
    arrays = [_inputs(scene) for scene in (first, again, other)]
    assert all((a == b).all() for a, b in zip(arrays[0], arrays[1], strict=True))
    assert any((a != b).any() for a, b in zip(arrays[0], arrays[2], strict=True))
    assert (first.seed, other.seed) == (3, 4)


def _inputs(scene) -> list:
    held = scene.inputs
    if isinstance(held, dict):
        return list(held.values())
    return list(held) if isinstance(held, tuple) else [held]


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
