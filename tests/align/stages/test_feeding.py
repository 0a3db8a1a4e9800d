"""Stage "data": clean loaders pass, each slip of a loader is found at its key and named."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import paddle
import pytest
import torch

from align.record.request import Request
from align.stages.batch_data import compare_batch, data, read_batch

CLS, SEP, UNKNOWN = 101, 102, 100
MEAN, STD = np.array([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]]).reshape(2, 3, 1, 1)


def run(reference, ours):
    plan = Request(None, None, (np.zeros(1),), data=(reference, ours))
    return data(SimpleNamespace(plan=plan, dtype="float64"))


def first(reference, ours):
    result, found = run(reference, ours)
    assert not result.passed
    assert result.problems == []  # every control caught
    return found[0]


def encode(rng, rows=11, seed=None, **knobs):
    """Rows of two texts as a tokenizer encodes them; the knobs are a loader's options."""
    get = {"limit": 12, "specials": True, "close": True, "lost": False, **knobs}
    found = []
    for _ in range(rows):
        one, two = (rng.integers(110, 200, rng.integers(1, 8)).tolist() for _ in range(2))
        if get["lost"]:
            one, two = ([UNKNOWN if t % 3 == 0 else t for t in part] for part in (one, two))
        ids = [CLS, *one, SEP, *two, SEP] if get["specials"] else [*one, *two]
        types = [0] * (len(one) + 2) + [1] * (len(two) + 1)
        if len(ids) > get["limit"]:
            ids = ids[: get["limit"] - 1] + [SEP] if get["close"] else ids[: get["limit"]]
        found.append((ids, types[: len(ids)], int(rng.integers(0, 3))))
    return found


def collate(rows, size=4, side="right", pad=0, length=None):
    """Batches of padded arrays."""
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        width = length or max(len(ids) for ids, _, _ in part)

        def fill(values, value, width=width):
            gap = [value] * (width - len(values))
            return gap + values if side == "left" else values + gap

        yield {
            "input_ids": np.array([fill(ids, pad) for ids, _, _ in part]),
            "token_type_ids": np.array([fill(types, 0) for _, types, _ in part]),
            "attention_mask": np.array([fill([1] * len(ids), 0) for ids, _, _ in part]),
            "labels": np.array([label for _, _, label in part]),
        }


def texts(seed=0, size=4, side="right", pad=0, length=None, **knobs):
    return list(collate(encode(np.random.default_rng(seed), **knobs), size, side, pad, length))


def images(seed=0, size=3, count=7):
    rng = np.random.default_rng(seed)
    smooth = rng.uniform(0, 255, (count, 3, 6, 6)).repeat(3, axis=2).repeat(3, axis=3)
    pixels = np.clip(smooth + rng.normal(0, 9, smooth.shape), 0, 255).round()
    return [
        (pixels[i : i + size] / 255, np.arange(i, min(i + size, count)) % 2)
        for i in range(0, count, size)
    ]


def normalise(batches):
    return [((x - MEAN) / STD, y) for x, y in batches]


def of_images(change):
    """Both sides' normalised images, ours changed."""
    theirs = normalise(images())
    return theirs, [(change(x), y) for x, y in theirs]


@pytest.mark.parametrize("seed", range(4))
def test_equal_loaders_of_both_frameworks_pass(seed) -> None:
    rows, pixels = texts(seed), normalise(images(seed))
    theirs = [{k: torch.tensor(v) for k, v in batch.items()} for batch in rows]
    ours = [{k: paddle.to_tensor(v) for k, v in batch.items()} for batch in rows]
    result, found = run(theirs, lambda: iter(ours))
    assert result.passed, [c.reason for c in result.failures] + result.problems
    assert found == []
    assert {c.name for c in result.controls} >= {"one value changed", "one batch fewer"}
    single = [(x.astype("float32"), y.astype("int32")) for x, y in pixels]
    moved = [(np.nextafter(x, np.float32(9)), y.astype("int64")) for x, y in single]
    result, found = run(single, moved)
    assert result.passed, [c.reason for c in result.failures] + result.problems


def shuffled():
    """The same rows in another order, padded to one length."""
    rows = encode(np.random.default_rng(0), limit=30)
    return list(collate([*rows[-3:], *rows[:-3]], length=max(len(ids) for ids, _, _ in rows)))


@pytest.mark.parametrize(
    ("ours", "cause"),
    [
        (shuffled(), "sample order: the same rows in another order"),
        (texts(limit=30)[:-1], "drop_last: Paddle drops the last incomplete batch of 3 rows"),
        (texts(size=3, limit=30), "another batch size: Paddle's batches hold 3 rows, PyTorch's 4"),
        (texts(limit=30)[:1], "Paddle's data end 7 rows earlier"),
        (texts(side="left", limit=30), "padding is on the left in Paddle, on the right in"),
        (texts(pad=1, limit=30), "padding id: Paddle pads with 1, PyTorch with 0"),
        (texts(length=24, limit=30), "padded length: 24"),
        (texts(specials=False, limit=30), "special tokens missing"),
    ],
)
def test_whole_rows_and_options_of_the_tokenizer_are_named(ours, cause) -> None:
    found = first(texts(limit=30), ours)
    assert found.place == ("input_ids" if cause.startswith(("pad", "special")) else "batches")
    assert cause in found.cause


def changed(key, change):
    return [{**batch, key: change(batch[key])} for batch in texts()]


@pytest.mark.parametrize(
    ("key", "change", "cause"),
    [
        ("attention_mask", lambda x: 1 - x, "inverted: PyTorch's 0 -> 1, 1 -> 0"),
        ("attention_mask", np.zeros_like, "all zeros in Paddle"),
        ("attention_mask", lambda x: (1 - x) * -10000.0, "PyTorch's 0 -> -10000, 1 -> 0"),
        ("attention_mask", lambda x: x.astype(bool), "another kind of number: bool in Paddle"),
        ("labels", lambda x: 5 - x, "numbered in another way: PyTorch's 1 -> 4, 2 -> 3 in Paddle"),
        ("labels", lambda x: np.eye(3)[x], "one-hot"),
        ("labels", lambda x: x[:, None], "only the shape differs"),
        ("input_ids", lambda x: x + 3, "3 larger"),
    ],
)
def test_a_wrong_key_is_named(key, change, cause) -> None:
    found = first(texts(), changed(key, change))
    assert found.place == key
    assert cause in found.cause


def with_tokens(make):
    return [{**b, "token_labels": make(b["attention_mask"])} for b in texts()]


@pytest.mark.parametrize(
    ("theirs", "ours", "cause"),
    [
        (
            lambda m: np.where(m, m.cumsum(1) % 3, -100),
            lambda m: np.where(m, m.cumsum(1) % 3, 7),
            "padding id: Paddle pads with 7, PyTorch with -100",
        ),
        (
            lambda m: np.arange(m.shape[1])[None].repeat(len(m), 0),
            lambda m: 2 + np.arange(m.shape[1])[None].repeat(len(m), 0),
            "2 larger in Paddle: counted from 2 instead of 0",
        ),
        (
            lambda m: (m.cumsum(1) ** 2) % 23,
            lambda m: np.roll((m.cumsum(1) ** 2) % 23, 1, 1),
            "shifted round by 1 along axis 1",
        ),
    ],
)
def test_labels_and_positions_of_tokens_are_named(theirs, ours, cause) -> None:
    found = first(with_tokens(theirs), with_tokens(ours))
    assert found.place == "token_labels"
    assert cause in found.cause


def test_a_key_under_another_name_or_missing_is_named() -> None:
    renamed = [{("label" if k == "labels" else k): v for k, v in b.items()} for b in texts()]
    found = first(texts(), renamed)
    assert found.place == "labels"
    assert "under the name 'label'" in found.cause
    fewer = [{k: v for k, v in b.items() if k != "token_type_ids"} for b in texts()]
    for pair, side in ((texts(), fewer), "Paddle"), ((fewer, texts()), "PyTorch"):
        assert f"'token_type_ids' is missing in {side}: it has input_ids, " in first(*pair).cause


def raw(x):
    return x * STD + MEAN


def other(mean, std):
    return lambda x: (raw(x) - mean) / std


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (lambda x: x[:, ::-1], "channels are reversed (BGR"),
        (lambda x: x.transpose(0, 2, 3, 1), "layout: channels last (HWC) in Paddle"),
        (lambda x: x[..., ::-1], "horizontal flip"),
        (
            lambda x: x.swapaxes(2, 3),
            "axes are swapped: Paddle's are PyTorch's in the order (0, 1, 3, 2)",
        ),
        (other(0.5, 0.5), "other mean and standard deviation: along axis 1"),
        (
            lambda x: (255 * raw(x) - MEAN) / STD,
            "x (255, 255, 255) plus (537.9, 517.1, 458.3) (not divided by 255 in Paddle)",
        ),
        (
            lambda x: (raw(x)[:, ::-1] - MEAN) / STD,
            "BGR against RGB) along axis 1; other mean and standard deviation",
        ),
        (lambda x: x.astype("float16").astype("float64"), "rounded to float16"),
        (lambda x: x[:, :, :16, :16], "longer or shorter along axis 2, 3"),
        (lambda x: (255 * raw(x)).round().astype("uint8"), "other mean and standard deviation"),
    ],
)
def test_a_wrong_image_is_named(change, cause) -> None:
    found = first(*of_images(change))
    assert found.place == "0"
    assert cause in found.cause


def test_a_shifted_crop_is_named() -> None:
    rng = np.random.default_rng(5)
    wide = rng.normal(size=(5, 3, 24, 24))
    crop = [wide[:, :, 4:20, 4:20]], [wide[:, :, 6:22, 3:19]]
    cause = first(*crop).cause
    assert cause == "crop shifted: Paddle's begins +2 along axis 2 and -1 along axis 3"


def test_every_key_is_listed() -> None:
    _, found = run(texts(), texts(side="left"))
    assert [one.place for one in found] == ["input_ids", "token_type_ids", "attention_mask"]
    assert found[1].cause.startswith("padding is on the left")


def test_a_difference_in_a_later_batch_is_found_and_counted() -> None:
    ours = texts()
    ours[1]["labels"] = ours[1]["labels"].copy()
    ours[1]["labels"][2] += 5
    reason = first(texts(), ours).reason
    assert reason.startswith("batch 1: ")
    assert "(1 of 3 batches differ)" in reason


def test_batches_of_any_kind_are_read() -> None:
    notes: list[str] = []
    batch = (torch.ones(2, 3, dtype=torch.bfloat16), {"y": [1, 2], "id": ["a", "b"], "no": None})
    held = read_batch(batch, "Paddle", notes)
    assert list(held) == ["0", "1.y", "1.id"]
    assert held["0"].dtype == "float32"
    assert notes == ["Paddle's '1.no' holds a NoneType: not compared"]
    low = paddle.ones([2], "bfloat16")
    assert read_batch([low, 3.0], "Paddle", [])["0"].tolist() == [1, 1]
    assert list(read_batch(np.ones(2), "Paddle", [])) == ["0"]


def test_empty_keys_are_left_out_and_infinities_of_masks_are_equal() -> None:
    base = {"none": np.zeros((0, 4)), "mask": np.array([[0.0, -np.inf]])}
    assert [c.passed for c in compare_batch(base, base)] == [True]
    other = {**base, "mask": np.array([[-np.inf, 0.0]])}
    assert [c.passed for c in compare_batch(other, base)] == [False]


ONE_ITERATOR = iter(texts())


@pytest.mark.parametrize(
    ("reference", "ours", "message"),
    [
        (ONE_ITERATOR, ONE_ITERATOR, "one and the same iterator"),
        (texts(), 3, "the Paddle side is a int, expected an iterable"),
        ([], [], "neither side yields a batch"),
        ([{"x": [[1], [1, 2]]}], [{"x": 1}], "inhomogeneous"),
    ],
)
def test_data_that_mean_nothing_are_refused(reference, ours, message) -> None:
    with pytest.raises(ValueError, match=message):
        run(reference, ours)
