"""Both models of a row: the same weights and batches on both sides, what they record by name."""

import dataclasses

import numpy as np
import pytest

from align.frameworks import on_paddle, on_torch
from align.pair.any_pair import AnyPair, Setup
from align.port.port_inputs import draw_batch, encoder_arrays, training_batches
from align.port.port_pair import ORDER, row_request
from align.port.row import Batch, Choices, PortRow, Recipe
from align.record.recording import ROOT
from sot_paddle.checkpoint import write_tensors
from tests.align.tiny_bert import OPTIONS

QK = PortRow("qk", options=OPTIONS)


def pair_of(row, dtype, choices=Choices()):  # noqa: B008 (frozen)
    return AnyPair(Setup(row_request(row, (dtype,), choices)), dtype)


def outputs(recording):
    return recording.calls[ROOT].outputs


def test_both_sides_hold_the_same_numbers_off_their_initial_values():
    pair = pair_of(QK, "float64")
    state = {name: np.asarray(value) for name, value in pair.setup.state.items()}
    for name, value in state.items():
        if value.ndim == 1 and value.dtype == np.float64:
            assert np.unique(value).size == value.size, name
    assert state["head.pooling.q_norm.running_var"].min() > 0
    paddle_state = on_paddle.state(pair.model)
    expected = pair.setup.weights.to_paddle(state)
    assert set(paddle_state) == set(expected)
    assert all(np.array_equal(paddle_state[name], expected[name]) for name in expected)


def test_the_float32_judge_is_a_float64_run_on_the_rounded_weights():
    exact = {n: np.asarray(v) for n, v in pair_of(QK, "float64").setup.state.items()}
    pair = pair_of(QK, "float32")
    judge = on_torch.state(pair.reference_model("float64", True))
    rounded = [name for name, value in exact.items() if value.dtype == np.float64]
    for name in rounded:
        assert np.array_equal(judge[name], exact[name].astype("float32").astype("float64"))
    assert sum(not np.array_equal(judge[name], exact[name]) for name in rounded) > 10


def test_a_batch_is_padded_and_the_same_each_time():
    batch, again = draw_batch(QK), draw_batch(QK)
    assert all(np.array_equal(batch[name], again[name]) for name in batch)
    assert batch["attention_mask"].sum(axis=1).tolist() == [11, 6, 9, 4]
    assert (batch["input_ids"][batch["attention_mask"] == 0] == 0).all()
    assert (batch["input_ids"][batch["attention_mask"] == 1] > 0).all()
    assert set(np.unique(batch["token_type_ids"])) == {0, 1}
    assert not np.array_equal(batch["input_ids"], draw_batch(QK, seed=1)["input_ids"])
    assert draw_batch(dataclasses.replace(QK, num_classes=1))["labels"].dtype == np.float64


def test_every_forward_pass_of_a_training_has_a_batch_of_its_own():
    row = dataclasses.replace(QK, recipe=Recipe(steps=6, accumulate=2))
    batches = training_batches(row)
    assert len({batch["input_ids"].tobytes() for batch in batches}) == len(batches) == 12


def test_real_sentences_are_the_users_and_their_words_are_judged_by_themselves(tmp_path):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "alpha", "beta", "gamma"]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    row = PortRow("real", options=OPTIONS, batch=Batch(length=8, sentences=True), train=False)
    choices = Choices(tmp_path, ["beta alpha", "gamma", "nowhere"])
    pair = pair_of(row, "float64", choices)
    assert pair.plan.inputs["input_ids"].tolist() == [
        [2, 6, 5, 3, 0, 0, 0, 0],
        [2, 7, 3, 0, 0, 0, 0, 0],
        [2, 1, 3, 0, 0, 0, 0, 0],
    ]
    taps = outputs(pair.reference)
    words = taps["layers.0"].reshape(24, -1)[[0, 1, 2, 3, 8, 9, 10, 16, 17, 18]]
    assert np.array_equal(taps["layers.0 (valid positions)"], words)


def test_taps_are_compared_in_their_order():
    pair = pair_of(QK, "float64")
    order = outputs(pair.ours)[ORDER]
    exchanged = pair.ours.with_output(ROOT, ORDER, order[::-1])
    assert all(one.passed for one in pair.taps(pair.ours))
    assert [one.name for one in pair.taps(exchanged) if not one.passed] == [f"{ROOT}[{ORDER}]"]


def test_encoder_arrays_are_the_files_values_in_float64_under_the_references_names(tmp_path):
    value = np.array([[1.1, -2.3, 0.7]], "float32")
    write_tensors(tmp_path / "model.safetensors", {"a.weight": value, "pooler.x": value})
    state = {"bert.a.weight": np.zeros((1, 3)), "head.word_fc.weight": np.zeros((2, 2))}
    found = encoder_arrays(tmp_path, state)
    assert list(found) == ["bert.a.weight"]
    assert found["bert.a.weight"].dtype == np.float64
    np.testing.assert_array_equal(found["bert.a.weight"], value.astype("float64"))
    with pytest.raises(ValueError, match=r"lacks bert\.b\.weight"):
        encoder_arrays(tmp_path, {**state, "bert.b.weight": np.ones(2)})
