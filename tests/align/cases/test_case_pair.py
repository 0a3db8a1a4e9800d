"""A pair: the same weights on both sides, the right judge, names for what differs."""

import dataclasses
import pickle
import warnings

import numpy as np
import pytest

with warnings.catch_warnings():  # 2026-11-21, paddlenlp 3.0.0b4: deprecated modules at import
    warnings.simplefilter("ignore")
    import sot_paddle.registry  # noqa: F401 (loads paddlenlp)
    from align.cases.case_pair import CasePair, draw_state, each, known_by_name, make_batch
    from align.cases.context import Context
    from align.cases.sides import paddle_side, torch_side

from align.cases.kinds.case_kinds import Batch, ModelCase, Recipe
from align.judge.comparator import compare_mappings
from align.record.arrays import TrainingRun
from align.record.results import Tolerance
from sot_paddle.data.real_sentences import REAL_SENTENCES
from tests.align.tiny_bert import OPTIONS

QK = ModelCase("qk", options=OPTIONS)
CONCAT = ModelCase("concat", options={**OPTIONS, "fusion": "concat"})
WORDS = {"pooling": "gap", "head_dropout": 0.0}
RECIPE = Recipe(steps=3, warmup_steps=1, total_steps=4)
RUN = TrainingRun(
    losses=[1.0, 2.0],
    learning_rates=[0.1, 0.2],
    state={"head.word_fc.bias": np.array([1.0, 2.0, 3.0])},
    moments={"exp_avg": {"head.word_fc.bias": np.ones(3)}},
    decayed={"head.word_fc.weight"},
)


@pytest.fixture(scope="module")
def pair64():
    return CasePair(QK, "float64")


@pytest.fixture(scope="module")
def pair32():
    return CasePair(QK, "float32")


@pytest.fixture
def vocabulary(tmp_path):
    """A folder with a vocabulary of letters."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "alpha", "beta", "gamma"]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    return tmp_path


def failing(comparisons):
    return [c.name for c in comparisons if not c.passed]


def test_both_sides_hold_the_same_numbers(pair64):
    ours = {n: t.numpy() for n, t in pair64.ours.state_dict().items()}
    expected = pair64.to_paddle(pair64.reference_state)
    assert set(ours) == set(expected)
    assert all(np.array_equal(ours[n], expected[n]) for n in ours)
    assert not pair64.needs_oracle
    assert pair64.oracle_pass is None


def test_weights_are_drawn_off_their_initial_values():
    state = draw_state(QK, None)
    for name, value in state.items():
        if value.ndim == 1 and value.dtype == np.float64:
            assert np.unique(value).size == value.size, name
    assert state["head.pooling.q_norm.running_var"].min() > 0


def test_the_float32_judge_is_a_float64_run_on_the_rounded_weights(pair32):
    drawn = draw_state(QK, None)
    judge = {n: t.numpy() for n, t in pair32.fresh_reference("float64").state_dict().items()}
    compared = 0
    for name, value in drawn.items():
        if value.dtype == np.float64:
            assert judge[name].dtype == np.float64
            rounded = value.astype("float32")
            np.testing.assert_array_equal(judge[name], rounded.astype("float64"))
            compared += not np.array_equal(judge[name], value)
    assert compared > 10  # rounding changed them, so the two could be told apart
    ours = {n: t.numpy() for n, t in pair32.ours.state_dict().items()}
    back = pair32.to_paddle({n: v.astype("float32") for n, v in judge.items() if v.ndim})
    assert all(np.array_equal(ours[n], back[n]) for n in ours)
    taps = pair32.oracle_pass.taps
    assert {tap.dtype.name for tap in taps.values()} == {"float64"}
    assert {tap.dtype.name for tap in pair32.reference_pass.taps.values()} == {"float32"}


def test_the_inputs_of_the_judge_are_rounded_too():
    case = ModelCase("words", options=WORDS, subject="words")
    pair = CasePair(case, "float32")
    tokens = pair._cast("float64")["tokens"]
    assert tokens.dtype == np.float64
    np.testing.assert_array_equal(tokens, tokens.astype("float32").astype("float64"))
    assert not np.array_equal(tokens, pair.batch["tokens"])
    assert pair._cast("float32")["labels"].dtype.kind == "i"


def test_a_clean_pair_passes_again_and_again(pair64, pair32):
    """Running statistics move in a pass; were they kept, every control would seem caught."""
    for pair in (pair64, pair32):
        assert failing(pair.compare_gradients(pair.ours_pass)) == []
        for _ in range(2):
            again = pair.run_ours()
            assert failing(pair.compare_taps(again.taps)) == []
            assert failing(pair.compare_gradients(again)) == []
        assert any("running_mean" in name for name in pair.ours_pass.buffers)


def test_taps_are_judged_by_name_and_in_order(pair64):
    taps = pair64.ours_pass.taps
    assert failing(pair64.compare_taps(taps)) == []
    assert failing(pair64.compare_taps(dict(reversed(taps.items())))) == ["(order of the taps)"]
    without = {name: tap for name, tap in taps.items() if name != "head.covariance"}
    assert "head.covariance" in failing(pair64.compare_taps(without))
    renamed = {("head.cov" if n == "head.covariance" else n): t for n, t in taps.items()}
    assert {"head.cov", "head.covariance"} <= set(failing(pair64.compare_taps(renamed)))


def test_parameters_without_a_gradient_must_be_the_same_on_both_sides():
    pair = CasePair(CONCAT, "float64")
    ours = pair.ours_pass
    unused = {"head.cls_fc.weight", "head.cls_fc.bias"}
    assert unused == {n for n, _ in pair.ours.named_parameters()} - set(ours.gradients)
    assert failing(pair.compare_gradients(ours)) == []
    weight = np.zeros((12, 3))  # even a gradient of zeros: an optimizer would move the parameter
    extra = dataclasses.replace(ours, gradients={**ours.gradients, "head.cls_fc.weight": weight})
    found = {c.name: c.reason for c in pair.compare_gradients(extra) if not c.passed}
    assert found == {"head.cls_fc.weight": "missing on the PyTorch side"}
    lost = {n: g for n, g in ours.gradients.items() if n != "head.word_fc.bias"}
    found = pair.compare_gradients(dataclasses.replace(ours, gradients=lost))
    reasons = {c.name: c.reason for c in found if not c.passed}
    assert reasons == {
        "head.word_fc.bias": "missing on the Paddle side; going back from the loss, the last right "
        "gradient is of the loss itself, the first wrong one of head.word_fc"
    }


def test_a_frozen_encoder_has_gradients_in_the_head_only():
    case = ModelCase("frozen", options={**OPTIONS, "freeze_encoder": True})
    pair = CasePair(case, "float64")
    assert {name.split(".")[0] for name in pair.ours_pass.gradients} == {"head"}
    assert failing(pair.compare_gradients(pair.ours_pass)) == []


def test_the_loss_and_running_statistics_are_judged_with_the_gradients(pair64):
    ours = pair64.ours_pass
    worse = dataclasses.replace(ours, loss=ours.loss * (1 + 1e-8))
    assert failing(pair64.compare_gradients(worse)) == ["loss"]
    name = "head.pooling.k_norm.running_var"
    moved = {**ours.buffers, name: ours.buffers[name] * (1 + 1e-8)}
    assert failing(pair64.compare_gradients(dataclasses.replace(ours, buffers=moved))) == [name]


def test_a_decayed_set_that_differs_is_named(pair64):
    def judged(decayed):
        ours, reference = (
            dataclasses.replace(RUN, decayed=names)
            for names in (decayed, {"head.word_fc.weight", "head.pooling.q_proj.weight"})
        )
        return list(pair64.compare_training("training", ours, reference, None))[-1]

    result = judged({"head.word_fc.weight", "bert.embeddings.layer_norm.weight"})
    assert not result.passed
    assert result.name == (
        "(decayed parameters: bert.embeddings.layer_norm.weight, head.pooling.q_proj.weight)"
    )
    result = judged({"head.word_fc.weight", "head.pooling.q_proj.weight"})
    assert (result.name, result.passed) == ("(decayed parameters)", True)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"losses": [1.0, 2.0 + 1e-6]}, "losses"),
        ({"learning_rates": [0.1, 0.3]}, "learning rates"),
        ({"learning_rates": [0.1]}, "learning rates"),
        ({"state": {"head.word_fc.bias": np.array([1.0, 2.0, 3.1])}}, "head.word_fc.bias"),
        ({"state": {}}, "head.word_fc.bias"),
        (
            {"moments": {"exp_avg": {"head.word_fc.bias": np.array([1.0, 1.0, 2.0])}}},
            "exp_avg/head.word_fc.bias",
        ),
    ],
)
def test_every_part_of_a_training_run_is_judged(pair64, change, where):
    assert failing(pair64.compare_training("training", RUN, RUN, None)) == []
    other = dataclasses.replace(RUN, **change)
    assert failing(pair64.compare_training("training", other, RUN, None)) == [where]


def state_of(model):
    return {name: np.array(tensor.numpy()) for name, tensor in model.state_dict().items()}


def has_gradients(model):
    return any(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize("side", [paddle_side, torch_side], ids=["paddle", "torch"])
def test_a_model_to_train_is_built_once_and_begins_like_a_new_one(side):
    pair = CasePair(QK, "float64")
    fresh = {paddle_side: pair.fresh_ours, torch_side: pair.fresh_reference}[side]
    build = {paddle_side: paddle_side.build, torch_side: torch_side.build}[side]
    batches = [make_batch(QK, seed=seed) for seed in (1, 2, 3)]
    model = fresh()
    before = state_of(model)
    first = list(side.train(model, batches, RECIPE, "float64"))[-1]
    assert any(not np.array_equal(before[name], value) for name, value in state_of(model).items())
    assert fresh() is model
    assert all(np.array_equal(before[name], value) for name, value in state_of(model).items())
    assert not has_gradients(model)
    state = pair.reference_state
    if side is paddle_side:
        state = pair.to_paddle(state)
    for again in (model, build(QK, "float64", state)):
        run = list(side.train(again, batches, RECIPE, "float64"))[-1]
        assert run.losses == first.losses
        for kind, moments in run.moments.items():
            assert set(moments) == set(first.moments[kind])
            assert all(np.array_equal(moments[n], first.moments[kind][n]) for n in moments)
        assert all(np.array_equal(run.state[name], first.state[name]) for name in run.state)


def test_a_trained_model_is_not_the_one_that_the_passes_use():
    pair = CasePair(QK, "float64")
    assert failing(pair.compare_taps(pair.run_ours().taps)) == []
    list(paddle_side.train(pair.fresh_ours(), [make_batch(QK)], RECIPE, "float64"))
    assert failing(pair.compare_taps(pair.run_ours().taps)) == []


@pytest.mark.parametrize("side", [paddle_side, torch_side], ids=["paddle", "torch"])
def test_a_pause_shows_the_run_as_a_shorter_one_leaves_it(pair64, side):
    fresh = {paddle_side: pair64.fresh_ours, torch_side: pair64.fresh_reference}[side]
    recipe = dataclasses.replace(RECIPE, accumulate=2, ema_decay=0.9)
    batches = [make_batch(QK, seed=seed) for seed in range(6)]
    paused = list(side.train(fresh(), batches, recipe, "float64", (1, 3)))
    assert [len(run.losses) for run in paused] == [2, 6]
    assert [len(run.learning_rates) for run in paused] == [1, 3]
    (short,) = side.train(fresh(), batches[:2], recipe, "float64")
    for part in ("state", "average"):
        arrays, expected = getattr(paused[0], part), getattr(short, part)
        assert set(arrays) == set(expected)
        assert all(np.array_equal(arrays[name], expected[name]) for name in expected)


def test_a_forward_pass_alone_gives_the_same_taps_and_leaves_no_gradient(pair64):
    full, forward = pair64.run_ours(), pair64.run_ours(backward=False)
    assert forward.gradients == {}
    assert list(full.taps) == list(forward.taps)
    assert all(np.array_equal(full.taps[name], tap) for name, tap in forward.taps.items())
    assert not has_gradients(pair64.ours)
    assert not has_gradients(pair64.fresh_reference())


RULE = Tolerance("scaled", 1e-10, "a rule for these tests")


def test_each_judges_as_the_comparator_does_one_name_at_a_time():
    reference = {"a": np.arange(1.0, 4), "b": np.ones(2), "c": np.ones(3)}
    ours = {"b": np.ones(2) * 2, "a": np.arange(1.0, 4), "d": np.ones(1)}
    found = list(each(ours, reference, RULE))
    assert found == compare_mappings(ours, reference, RULE)
    assert [(c.name, c.passed) for c in found] == [
        ("a", True),
        ("b", False),
        ("c", False),
        ("d", False),
    ]
    assert list(each({}, {}, RULE)) == compare_mappings({}, {}, RULE)
    assert not next(each({}, {}, RULE)).passed


def test_what_was_judged_is_not_judged_again_and_what_changed_is():
    reference = {"a": np.arange(1.0, 4), "b": np.ones(2)}
    ours = {"a": reference["a"].copy(), "b": np.ones(2)}
    known = known_by_name(ours, list(each(ours, reference, RULE)))
    again = list(each({**ours, "b": np.full(2, 3.0)}, reference, RULE, known=known))
    assert again[0] is known["a"][1]
    assert not again[1].passed
    equal = {name: value.copy() for name, value in ours.items()}
    assert next(each(equal, reference, RULE, known=known)) is not known["a"][1]
    ours["a"][1] = np.nan  # a value written into the same array would go unseen:
    assert next(each(ours, reference, RULE, known=known)).passed  # so controls copy before


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
    assert not pair.has_backward
    names = [c.name for c in pair.compare_taps(pair.ours_pass.taps)]
    assert names[0] == "layers.0 (valid positions)"
    assert Context().texts is REAL_SENTENCES


def test_valid_positions_have_their_own_absolute_bound(vocabulary):
    case = ModelCase(
        "real", options=OPTIONS, batch=Batch(length=8, sentences=True), steps=("forward",)
    )
    pair = Context(checkpoint=vocabulary, sentences=["alpha", "beta"]).pair(case, "float32")
    taps = dict(pair.ours_pass.taps)
    taps["layers.0"] = taps["layers.0"].copy()
    taps["layers.0"][1, 2] += np.float32(1e-3)  # the third token of "[CLS] beta [SEP]": valid
    assert failing(pair.compare_taps(taps))[0] == "layers.0 (valid positions)"
    taps["layers.0"] = pair.ours_pass.taps["layers.0"].copy()
    taps["layers.0"][1, 3] += np.float32(1e-3)  # padding
    assert failing(pair.compare_taps(taps)) == ["layers.0"]


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
    context = Context(checkpoint=vocabulary, sentences=["alpha"], glue_dir=vocabulary)
    again = Context(**pickle.loads(pickle.dumps(context.choices)))  # as a pipe carries it
    assert (again.checkpoint, again.texts, again.glue_dir) == (vocabulary, ["alpha"], vocabulary)
    assert set(context.choices) == {"checkpoint", "sentences", "glue_dir"}


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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.pop("head.word_fc.bias"), r"missing \['head.word_fc.bias'\]"),
        (lambda s: s.update(x=np.ones(1)), r"unexpected \['x'\]"),
        (lambda s: s.update({"head.word_fc.bias": np.ones(4)}), r"expected shape \(3,\)"),
        (lambda s: s.update({"head.word_fc.weight": np.ones((3, 35))}), r"shape \(35, 3\)"),
    ],
)
def test_the_paddle_side_loads_strictly(pair64, change, message):
    state = pair64.to_paddle(pair64.reference_state)
    change(state)
    with pytest.raises(ValueError, match=message):
        paddle_side.load_state(pair64.fresh_ours(), state)


def test_a_recipe_accumulates_batches(pair64):
    recipe = Recipe(steps=1, warmup_steps=0, accumulate=2)
    batches = [make_batch(QK, seed=seed) for seed in (1, 2)]
    for side, model in ((paddle_side, pair64.fresh_ours()), (torch_side, pair64.fresh_reference())):
        (run,) = side.train(model, batches, recipe, "float64")
        assert (len(run.losses), len(run.learning_rates)) == (2, 1)
