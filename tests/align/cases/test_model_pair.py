"""A model case as a pair: the same weights on both sides, its taps by name, faults that show."""

import dataclasses
import pickle

import numpy as np
import pytest

from align.cases import runner
from align.cases.context import Context
from align.cases.kinds.case_kinds import Batch, ImageBatch, ModelCase, Recipe
from align.cases.model_pair import ORDER, ModelPair
from align.cases.sides import paddle_side, torch_side
from align.cases.sides.drawn_models import draw_state, make_batch
from align.record.recording import ROOT
from align.record.stored_arrays import Lazy
from sot_paddle.data.real_sentences import REAL_SENTENCES
from tests.align.tiny_bert import OPTIONS

QK = ModelCase("qk", options=OPTIONS)
CONCAT = ModelCase("concat", options={**OPTIONS, "fusion": "concat"})
WORDS = {"pooling": "gap", "head_dropout": 0.0}
RECIPE = Recipe(steps=3, warmup_steps=1, total_steps=4, accumulate=2, ema_decay=0.9)


class Held(Context):
    """A context that hands out one pair, whose recordings a test may change."""

    def pair(self, case, dtype):
        return self.held


def failing(pair, step="forward", **changes):
    """Names of what fails in a step when something else was recorded of ours."""
    context, clean = Held(), pair.ours
    context.held, pair.ours = pair, dataclasses.replace(clean, **changes)
    try:
        run = {"forward": runner.run_forward, "backward": runner.run_backward}[step]
        found = run(pair.case, pair.dtype, context)
    finally:
        pair.ours = clean
    return {c.name: c.reason for c in found.failures}


def with_taps(pair, change):
    """The calls of our pass with other taps, a mapping of them in and out."""
    call = pair.ours.calls[ROOT]
    outputs = list(change(dict(call.outputs)).items())
    return {"calls": {**pair.ours.calls, ROOT: dataclasses.replace(call, outputs=outputs)}}


@pytest.fixture(scope="module")
def pair64():
    return ModelPair(QK, "float64")


@pytest.fixture(scope="module")
def pair32():
    return ModelPair(QK, "float32")


@pytest.fixture
def vocabulary(tmp_path):
    """A folder with a vocabulary of letters."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "alpha", "beta", "gamma"]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    return tmp_path


def test_weights_are_drawn_off_their_initial_values():
    state = draw_state(QK)
    for name, value in state.items():
        if value.ndim == 1 and value.dtype == np.float64:
            assert np.unique(value).size == value.size, name
    assert state["head.pooling.q_norm.running_var"].min() > 0


def test_both_sides_hold_the_same_numbers(pair64):
    ours = {n: t.numpy() for n, t in pair64.model.state_dict().items()}
    expected = pair64.to_paddle(dict(pair64.setup.state))
    assert set(ours) == set(expected)
    assert all(np.array_equal(ours[n], expected[n]) for n in ours)
    assert pair64.oracle is None


def test_the_float32_judge_is_a_float64_run_on_the_rounded_weights(pair32):
    drawn = draw_state(QK)
    judge = {n: t.numpy() for n, t in pair32.reference_model("float64", True).state_dict().items()}
    compared = 0
    for name, value in drawn.items():
        if value.dtype == np.float64:
            assert judge[name].dtype == np.float64
            rounded = value.astype("float32")
            np.testing.assert_array_equal(judge[name], rounded.astype("float64"))
            compared += not np.array_equal(judge[name], value)
    assert compared > 10  # rounding changed them, so the two could be told apart
    kinds = [
        {a.dtype.name for n, a in pair32.outputs(run).items() if n != ORDER}
        for run in (pair32.oracle, pair32.reference)
    ]
    assert kinds == [{"float64"}, {"float32"}]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_clean_pair_passes_again_and_again(dtype, pair64, pair32):
    """Running statistics move in a pass; were they kept, every control would seem caught."""
    pair = {"float64": pair64, "float32": pair32}[dtype]
    assert any("running_mean" in name for name in pair.ours.state)
    for _ in range(2):
        again = pair.run_ours()
        changes = {"calls": again.calls, "gradients": again.gradients, "state": again.state}
        assert failing(pair, **changes) == {}
        assert failing(pair, "backward", **changes) == {}


def test_taps_are_judged_by_name_and_in_order(pair64):
    places = pair64.outputs(pair64.ours)[ORDER]
    other = with_taps(pair64, lambda taps: {**taps, ORDER: places[::-1].copy()})
    assert list(failing(pair64, **other)) == [ORDER]

    def lost(taps):
        return {name: tap for name, tap in taps.items() if name != "head.covariance"}

    assert "head.covariance" in str(failing(pair64, **with_taps(pair64, lost)))


def test_parameters_without_a_gradient_must_be_the_same_on_both_sides():
    pair = ModelPair(CONCAT, "float64")
    held = dict(pair.ours.gradients)
    unused = {"head.cls_fc.weight", "head.cls_fc.bias"}
    assert unused == {n for n, _ in pair.model.named_parameters()} - set(held)
    weight = np.zeros((12, 3))  # even a gradient of zeros: an optimizer would move the parameter
    extra = failing(pair, "backward", gradients={**held, "head.cls_fc.weight": weight})
    assert extra == {"head.cls_fc.weight": "missing on the PyTorch side"}
    lost = {n: g for n, g in held.items() if n != "head.word_fc.bias"}
    assert failing(pair, "backward", gradients=lost) == {
        "head.word_fc.bias": "missing on the Paddle side; going back from the loss, the last right "
        "gradient is of the loss itself, the first wrong one of head.word_fc"
    }


def test_a_frozen_encoder_has_gradients_in_the_head_only():
    case = ModelCase("frozen", options={**OPTIONS, "freeze_encoder": True})
    pair = ModelPair(case, "float64")
    assert {name.split(".")[0] for name in pair.ours.gradients} == {"head"}
    assert failing(pair, "backward") == {}


def test_the_loss_and_running_statistics_are_judged(pair64):
    ours = pair64.ours
    assert list(failing(pair64, "backward", loss=ours.loss * (1 + 1e-8))) == ["loss"]
    name = "head.pooling.k_norm.running_var"
    moved = Lazy({n: lambda n=n: ours.state[n] * (1 + 1e-8 * (n == name)) for n in ours.state})
    assert list(failing(pair64, state=moved)) == [name]


def test_a_training_does_not_change_what_the_passes_use():
    case = dataclasses.replace(QK, steps=("forward", "training"), recipe=RECIPE)
    pair = ModelPair(case, "float64")
    run = pair.train_ours()
    assert (len(run.losses), len(run.learning_rates)) == (3, 3)
    assert set(run.moments) == {"moment1", "moment2", "average"}
    assert failing(pair) == {}
    again = pair.train_ours()
    assert again.losses == run.losses


def test_accumulation_and_the_moving_average_are_compared():
    case = dataclasses.replace(QK, steps=("training",), recipe=RECIPE)
    context = Held()
    context.held = pair = ModelPair(case, "float64")
    result = runner.run_training(case, "float64", context)
    assert result.passed, (result.problems, result.failures)
    names = {c.name for c in result.comparisons}
    assert "average/head.word_fc.weight" in names
    assert "average/head.pooling.k_norm.running_var" in names
    slower = dataclasses.replace(RECIPE, ema_decay=0.91)
    pair.plan = dataclasses.replace(
        pair.plan, optimizer=(torch_side.factory(RECIPE), paddle_side.factory(slower))
    )
    failures = runner.run_training(case, "float64", context).failures
    assert failures
    assert all(c.name.startswith("average/") for c in failures)


@pytest.mark.parametrize("train", [True, False])
def test_a_fault_in_the_head_shows_as_in_a_whole_pass(train):
    """It is planted behind what the backbone made, whose running statistics move as well."""
    small = {"img_size": 32, "embed_dim": 12, "depth": 1, "num_heads": 2, "dense_norm": "bn"}
    head = {"wr_dim": 4, "qkv_dim": 6}
    case = ModelCase(
        "images",
        "sot_tiny",
        {**small, **head},
        subject="images",
        batch=ImageBatch(2, 32),
        num_classes=5,
        train=train,
    )
    pair = ModelPair(case, "float64")
    clean = pair.outputs(pair.ours)
    kept = {name: pair.model.state_dict()[name].numpy() for name in pair.ours.state}
    weight = pair.model.head.cls_fc.weight
    weight.set_value(weight.numpy() * 1.5)
    found = []
    for changed in ("head.cls_fc", "embed"):
        with pair.pass_ours(backward=False, changed=changed) as faulty:
            found.append({**pair.outputs(faulty), **faulty.state})
    short, whole = found
    assert list(short) == list(whole)
    assert all(np.array_equal(short[name], whole[name]) for name in whole)
    assert not np.array_equal(short["logits"], clean["logits"])
    statistics = [name for name in kept if name.endswith("running_mean")]
    assert any(name.startswith("embed.") for name in statistics)
    for name in statistics:
        assert np.array_equal(whole[name], kept[name]) != train, name
        assert np.array_equal(pair.model.state_dict()[name].numpy(), kept[name]), name


def test_a_forward_case_runs_no_backward_pass():
    pair = ModelPair(dataclasses.replace(QK, steps=("forward",)), "float64")
    assert dict(pair.ours.gradients) == {}
    assert failing(pair) == {}


def test_a_batch_is_padded_and_the_same_each_time():
    batch, again = make_batch(QK), make_batch(QK)
    assert all(np.array_equal(batch[name], again[name]) for name in batch)
    assert batch["attention_mask"].sum(axis=1).tolist() == [11, 6, 9, 4]
    assert (batch["input_ids"][batch["attention_mask"] == 0] == 0).all()
    assert (batch["input_ids"][batch["attention_mask"] == 1] > 0).all()
    assert set(np.unique(batch["token_type_ids"])) == {0, 1}
    other = make_batch(QK, seed=1)
    assert not np.array_equal(batch["input_ids"], other["input_ids"])
    assert make_batch(dataclasses.replace(QK, num_classes=1))["labels"].dtype == np.float64


def test_a_sentences_case_runs_on_the_users_sentences(vocabulary):
    case = ModelCase("real", options=OPTIONS, batch=Batch(length=8, sentences=True))
    batch = make_batch(case, sentences=["beta alpha", "gamma", "nowhere"], checkpoint=vocabulary)
    assert batch["input_ids"].tolist() == [
        [2, 6, 5, 3, 0, 0, 0, 0],
        [2, 7, 3, 0, 0, 0, 0, 0],
        [2, 1, 3, 0, 0, 0, 0, 0],
    ]
    assert batch["attention_mask"].sum(axis=1).tolist() == [4, 3, 3]
    assert batch["labels"].shape == (3,)
    frozen = dataclasses.replace(case, steps=("forward",))
    pair = Context(checkpoint=vocabulary, sentences=["gamma gamma"]).pair(frozen, "float32")
    assert pair.batch["input_ids"].tolist() == [[2, 7, 7, 3, 0, 0, 0, 0]]
    assert not pair.backward
    assert next(iter(pair.outputs(pair.ours))) == "layers.0 (valid positions)"
    assert Context().texts is REAL_SENTENCES


def test_valid_positions_are_judged_by_themselves(vocabulary):
    case = ModelCase(
        "real", options=OPTIONS, batch=Batch(length=8, sentences=True), steps=("forward",)
    )
    pair = Context(checkpoint=vocabulary, sentences=["alpha", "beta"]).pair(case, "float32")
    taps = pair.outputs(pair.ours)
    valid = taps["layers.0"].reshape(16, -1)[[0, 1, 2, 8, 9, 10]]
    np.testing.assert_array_equal(taps["layers.0 (valid positions)"], valid)


def test_a_context_keeps_the_last_pair_only():
    context = Context()
    words = ModelCase("words", options=WORDS, subject="words")
    first = context.pair(words, "float64")
    assert context.pair(words, "float64") is first
    second = context.pair(words, "float32")
    assert second is not first
    assert second.dtype == "float32"
    other = context.pair(dataclasses.replace(words, name="other"), "float32")
    assert other.case.name == "other"
    assert context.pair(words, "float64") is not first


def test_a_context_gathers_arrays_for_the_classic_files():
    context = Context()
    context.log_classic("forward_align", "a/float64", {"x": np.ones(1)}, {"x": np.zeros(1)})
    context.log_classic("forward_align", "b/float64", {"x": np.ones(1)}, {"x": np.zeros(1)})
    torch_arrays, ours = context.classic["forward_align"]
    assert list(torch_arrays) == list(ours) == ["a/float64/x", "b/float64/x"]
    assert (torch_arrays["a/float64/x"], ours["a/float64/x"]) == (1, 0)


def test_arrays_taken_from_one_context_are_added_to_another():
    one, all_of_them = Context(), Context()
    for name in ("a", "b"):
        one.log_classic("forward_align", name, {"x": np.ones(1)}, {"x": np.zeros(1)})
        all_of_them.add_classic(one.take_classic())
        assert one.classic == {}
    torch_arrays, ours = all_of_them.classic["forward_align"]
    assert list(torch_arrays) == list(ours) == ["a/x", "b/x"]
    assert (torch_arrays["b/x"], ours["b/x"]) == (1, 0)


def test_a_context_can_be_made_again_elsewhere(vocabulary):
    context = Context(checkpoint=vocabulary, sentences=["alpha"])
    again = Context(**pickle.loads(pickle.dumps(context.choices)))  # as a pipe carries it
    assert (again.checkpoint, again.texts) == (vocabulary, ["alpha"])
    assert set(context.choices) == {"checkpoint", "sentences"}


def test_a_context_reads_a_vocabulary_once_for_equal_options(vocabulary):
    context = Context(checkpoint=vocabulary)
    assert context.vocabulary == vocabulary
    for make in (context.tokenizer, context.reference_tokenizer):
        first = make(do_lower_case=True)
        assert make(do_lower_case=True) is first
        assert make(do_lower_case=False) is not first
    ours, reference = context.tokenizer(), context.reference_tokenizer()
    assert ours.encode_batch(["beta alpha"], max_length=8)["input_ids"][0].tolist() == [
        *reference("beta alpha")["input_ids"],
        *[0] * 4,
    ]
