"""Which entry of a nested file is taken, and how the others are listed."""

import numpy as np
import pytest

from sot_paddle.checkpoint import choose_weights

WEIGHTS = {"w": np.ones((2, 3), np.float32), "b": np.ones(3), "count": np.array(7)}
SCORE = np.array(0.9)
OPTIMIZER = {"state": {0: WEIGHTS}, "param_groups": [{"params": [0]}]}


def choose(content, **options):
    return choose_weights(content, lambda v: v if isinstance(v, np.ndarray) else None, **options)


@pytest.mark.parametrize(
    ("content", "note"),
    [
        (WEIGHTS, None),
        ({"any name": WEIGHTS, "epoch": 3}, "under the key 'any name' is used"),
        ({"a": {"b": WEIGHTS}, "empty": {}}, "under the key 'a.b' is used"),
        ({"net": WEIGHTS, "optimizer": OPTIMIZER}, "under the key 'net' is used"),
        ({"net": WEIGHTS, "best": {"/a.ckpt": SCORE}, "score": SCORE}, "the key 'net' is used"),
        ({"net": WEIGHTS, "rng": {"cpu": np.zeros(9, np.uint8)}}, "the key 'net' is used"),
        ({**WEIGHTS, "epoch": 3}, None),
    ],
)
def test_the_only_mapping_of_names_to_tensors_is_taken(content, note):
    choice = choose(content)
    assert dict(choice.tensors) == WEIGHTS
    assert choice.averaged is None
    assert [n for n in choice.notes if note in n] if note else choice.notes == ()


def test_numbers_alone_are_weights_where_the_file_holds_nothing_else():
    assert set(choose({"count": np.array(7)}).tensors) == {"count"}


def test_several_are_refused():
    content = {"student": {"w": WEIGHTS["w"]}, "teacher": {"net": WEIGHTS}, "epoch": 3}
    listed = r"student \(1 tensors\), teacher.net \(3 tensors\)"
    with pytest.raises(ValueError, match=f"one entry of weights, ema aside, got 2 of {listed}"):
        choose(content)
    beside = {"net": WEIGHTS, "w": WEIGHTS["w"]}
    with pytest.raises(ValueError, match=r"got 2 of \. \(1 tensors\), net"):
        choose(beside)
    with pytest.raises(ValueError, match="one entry of averaged weights, .* got 0 of net"):
        choose({"net": WEIGHTS, "epoch": 3}, ema=True)
    with pytest.raises(ValueError, match="got 0 of ema .* or change --ema"):
        choose({"ema": WEIGHTS, "epoch": 3})


@pytest.mark.parametrize("key", ["ema", "model_ema", "state_dict_ema", "EMA", "ema.shadow"])
def test_averages_are_told_by_their_key(key):
    averages = {**WEIGHTS, "w": 2 * WEIGHTS["w"]}
    outer, _, inner = key.partition(".")
    content = {"model": WEIGHTS, outer: {inner: averages} if inner else averages}
    for ema, taken in ((False, WEIGHTS), (True, averages), (None, averages)):
        choice = choose(content, ema=ema)
        assert dict(choice.tensors) == taken
        assert choice.averaged is (taken is averages)
        assert any(f"under {key!r} are passed over" in n for n in choice.notes) == (ema is False)
    assert dict(choose({"model": WEIGHTS, "schema": 3}).tensors) == WEIGHTS


def test_what_holds_no_weights_is_said():
    with pytest.raises(
        ValueError, match=r"no entry holds tensors .*; it holds state \(dict\), para"
    ):
        choose(OPTIMIZER)
    with pytest.raises(ValueError, match="it holds nothing"):
        choose({})
    with pytest.raises(ValueError, match="expected a dict of tensors, got list"):
        choose([WEIGHTS])
