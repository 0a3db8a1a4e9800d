"""A pair of models with the same weights on the same batch, run once for several steps."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from align import paddle_side, torch_side
from align.backward_order import backward_order, say_where_it_ends
from align.bounds import TOLERANCES
from align.case_kinds import WORDS_DIM, Batch, ImageBatch, ModelCase, TimmCase
from align.checkpoint import encoder_arrays, find_checkpoint
from align.comparator import compare_arrays, compare_mappings
from align.results import Comparison, Tolerance
from align.sides import Arrays, Pass, TrainingRun
from align.weights import build_plan
from sot_paddle.data.tokenization import WordPieceTokenizer

_EXACT = Tolerance("exact", 0.0, "the order of execution is the same on both sides")

Known = Mapping[str, tuple[np.ndarray, Comparison]]


def make_batch(
    case: ModelCase,
    seed: int | None = None,
    *,
    sentences: Sequence[str] = (),
    checkpoint: Path | None = None,
) -> Arrays:
    """Draw a padded batch: ids, types, mask and labels (or tokens for a ``words`` case)."""
    spec = case.batch
    rng = np.random.default_rng(spec.seed if seed is None else seed)
    if isinstance(spec, ImageBatch):
        return _image_batch(spec, case.num_classes, rng)
    samples = len(sentences) if spec.sentences else len(spec.lengths)
    labels = rng.integers(0, max(2, case.num_classes), samples)
    if case.num_classes == 1:
        labels = np.round(rng.uniform(0, 5, samples), 2)
    if case.subject == "words":
        return {"tokens": rng.normal(size=(samples, spec.length, WORDS_DIM)), "labels": labels}
    if spec.sentences:
        tokenizer = WordPieceTokenizer(checkpoint or find_checkpoint(), max_length=spec.length)
        return {**tokenizer.encode_batch(sentences), "labels": labels}
    mask = (np.arange(spec.length)[None] < np.asarray(spec.lengths)[:, None]).astype("int64")
    vocab = case.options.get("vocab_size", 30522)
    pad = case.options.get("pad_token_id", 0)
    ids = np.where(mask, rng.integers(0 if pad else 1, vocab, mask.shape), pad)
    halves = np.asarray(spec.lengths)[:, None] // 2
    types = (np.arange(spec.length)[None] >= halves).astype("int64") * mask
    return {"input_ids": ids, "token_type_ids": types, "attention_mask": mask, "labels": labels}


def _image_batch(spec: ImageBatch, num_classes: int, rng: np.random.Generator) -> Arrays:
    """Normal pixels, and labels or soft targets as mixup leaves them: two classes and a floor."""
    images = rng.normal(size=(spec.samples, spec.channels, spec.size, spec.size))
    labels: np.ndarray = rng.integers(0, num_classes, spec.samples)
    if spec.soft:
        share = rng.uniform(0.2, 0.8, (spec.samples, 1))
        hot = np.eye(num_classes)[labels]
        labels = 0.9 * (share * hot + (1 - share) * hot[::-1]) + 0.1 / num_classes
    return {"images": images, "labels": labels}


def draw_state(case: ModelCase, checkpoint: Path | None) -> Arrays:
    """Reference weights in float64: random everywhere, or the real encoder with a random head.

    One-dimensional parameters are moved off their initial 0 and 1, so that a forgotten bias or
    norm weight shows; running variances stay positive.
    """
    return _drawn(case, torch_side.build_seeded(case), checkpoint)


def _drawn(case: ModelCase, model: Any, checkpoint: Path | None) -> Arrays:
    """:func:`draw_state` from the freshly built reference, which is left as it is."""
    state = {name: np.array(value) for name, value in model.state_dict().items()}
    rng = np.random.default_rng(case.batch.seed)
    for name, value in state.items():
        if name.endswith("running_var"):
            state[name] = rng.uniform(0.5, 1.5, value.shape)
        elif value.ndim <= 1 and value.dtype == np.float64:
            state[name] = np.asarray(value + 0.1 * rng.normal(size=value.shape))
        elif name.startswith("head.") and value.dtype == np.float64:
            state[name] = value * 3.0  # scores of order one instead of nearly constant ones
        elif name.startswith("embed.") and value.ndim == 4 and value.any():
            state[name] = value * 2.0  # torch's default would let the tokens become all alike
        elif (
            value.dtype == np.float64 and not value.any()
        ):  # a convolution that begins at zero would hide what feeds it
            state[name] = 0.1 * rng.normal(size=value.shape)
    if case.weights == "checkpoint":
        state.update(encoder_arrays(checkpoint, state))
    return state


def _planned_shapes(case: ModelCase, state: Arrays) -> dict[str, tuple[int, ...]]:
    """Names and shapes to plan from; a head alone is planned as part of a small BERT."""
    if case.subject == "words":
        encoder = {"hidden_size": WORDS_DIM, "num_attention_heads": 1, "num_hidden_layers": 1}
        options = {**case.options, **encoder, "fusion": "word_tokens"}
        host = dataclasses.replace(case, subject="text", options=options)
        state = torch_side.build(host, "float32").state_dict()
    return {name: tuple(value.shape) for name, value in state.items()}


class Pair:
    """Both sides of a case in one precision.

    A model is built once on each side and precision; what a step changes in it is put back. The
    judging methods compare one tensor after the other, so that a control is judged no further
    than its first failure.

    Args:
        case: what to build.
        dtype: ``float64`` or ``float32``. In float32 a third model, the float64 run of the
            reference on the same (rounded) weights, is the judge.
        checkpoint: directory of the real checkpoint, for the cases that use it.
        sentences: for the cases that use real sentences.
    """

    def __init__(
        self,
        case: ModelCase,
        dtype: str,
        checkpoint: Path | None = None,
        sentences: Sequence[str] = (),
    ) -> None:
        self.case, self.dtype = case, dtype
        seeded = torch_side.build_seeded(case)
        state = _drawn(case, seeded, checkpoint)
        self.reference_state = {
            name: np.asarray(value, dtype if value.dtype == np.float64 else None)
            for name, value in state.items()
        }
        self._references = {"float64": seeded}
        layout = case.layout if isinstance(case, TimmCase) else "sot_torch_ref"
        self.plan = build_plan(layout, case.model, _planned_shapes(case, state))
        self.batch = make_batch(case, sentences=sentences, checkpoint=checkpoint)
        self.ours = paddle_side.build(case, dtype, self.to_paddle(self.reference_state))

    @property
    def has_backward(self) -> bool:
        """Whether a step of the case looks at gradients."""
        return self.case.steps != ("forward",)

    @property
    def needs_oracle(self) -> bool:
        """Whether a float64 run of the reference judges (float32 only)."""
        return self.dtype != "float64"

    def to_paddle(self, arrays: Mapping[str, np.ndarray]) -> Arrays:
        """Rename and transpose reference arrays into Paddle's layout; ``(inputs)`` pass as is."""
        inputs = {name: value for name, value in arrays.items() if name.startswith("(")}
        weights = {name: value for name, value in arrays.items() if name not in inputs}
        return {**self.plan.apply(weights, partial=True), **inputs}

    def in_paddle_names(self, run: TrainingRun | None) -> TrainingRun | None:
        """A run of the reference with its tensors renamed and transposed into Paddle's layout."""
        if run is None:
            return None
        shapes = {name: np.empty(self.reference_state[name].shape) for name in run.decayed}
        return dataclasses.replace(
            run,
            state=self.to_paddle(run.state),
            average=self.to_paddle(run.average),
            moments={kind: self.to_paddle(values) for kind, values in run.moments.items()},
            decayed=set(self.to_paddle(shapes)),
        )

    def fresh_ours(self):
        """A second Paddle model, to be trained: with the pair's weights and without gradients."""
        paddle_side.load_state(self._trained, self.to_paddle(self.reference_state))
        paddle_side.drop_gradients(self._trained)
        return self._trained

    @functools.cached_property
    def _trained(self):
        return paddle_side.build(self.case, self.dtype)

    def fresh_reference(self, dtype: str | None = None):
        """The reference with the pair's weights put back, in float64 possibly rounded ones."""
        dtype = dtype or self.dtype
        if dtype not in self._references:
            self._references[dtype] = torch_side.build(self.case, dtype)
        model = self._references[dtype]
        torch_side.load_state(model, self.reference_state)
        return model

    @functools.cached_property
    def reference_pass(self) -> Pass:
        """The reference in the pair's precision."""
        return self._run_reference(self.dtype)

    @functools.cached_property
    def oracle_pass(self) -> Pass | None:
        """The reference in float64, when the pair is in float32."""
        return self._run_reference("float64") if self.needs_oracle else None

    def _run_reference(self, dtype: str) -> Pass:
        model, batch = self.fresh_reference(dtype), self._cast(dtype)
        return torch_side.run(model, batch, dtype, backward=self.has_backward)

    @functools.cached_property
    def ours_pass(self) -> Pass:
        """The Paddle side."""
        return self.run_ours(backward=self.has_backward)

    def run_ours(self, *, backward: bool = True) -> Pass:
        """Run the Paddle side now (controls change the model and run it again).

        Every run starts from the pair's running statistics: were they left moved, each later run
        would differ, and a control would seem caught whatever was planted.
        """
        with paddle_side.buffers_kept(self.ours):
            return paddle_side.run(self.ours, self._cast(self.dtype), self.dtype, backward=backward)

    def _cast(self, dtype: str) -> Arrays:
        """The batch with its floating arrays rounded to the pair's precision, as ``dtype``."""
        return {
            name: value.astype(self.dtype).astype(dtype) if value.dtype.kind == "f" else value
            for name, value in self.batch.items()
        }

    def shared_taps(self, taps: Mapping[str, np.ndarray]) -> Arrays:
        """What the reference has a counterpart for: timm's models show only their modules."""
        if not isinstance(self.case, TimmCase):
            return dict(taps)
        return {name: taps[name] for name in taps if name in self.reference_pass.taps}

    def compare_taps(
        self, taps: Mapping[str, np.ndarray], known: Known | None = None
    ) -> Iterator[Comparison]:
        """Judge taps of the Paddle side in execution order; ``known``: see `each`."""
        reference = self.reference_pass.taps
        yield from self._compare_valid_positions(taps)
        yield from each(
            taps,
            reference,
            self.case.tolerance("forward", self.dtype),
            oracle=self.oracle_pass.taps if self.oracle_pass else None,
            known=known,
        )
        yield compare_arrays(
            "(order of the taps)",
            np.asarray([list(taps).index(name) if name in taps else -1 for name in reference]),
            np.arange(len(reference)),
            _EXACT,
        )

    def _compare_valid_positions(self, taps: Mapping[str, np.ndarray]) -> Iterator[Comparison]:
        """Real sentences in float32: last hidden states at valid positions, side against side.

        Padded positions are ill-conditioned; the oracle comparison that follows judges them, and
        the layers below, by PyTorch's own distance from float64.
        """
        rule = TOLERANCES.get(("valid positions", self.dtype))
        batch = self.case.batch
        if rule is None or not isinstance(batch, Batch) or not batch.sentences:
            return
        valid = self.batch["attention_mask"].astype(bool)
        reference = self.reference_pass.taps
        last = [name for name in reference if name.startswith("layers.")][-1]
        ours = taps.get(last)
        if ours is None or ours.shape[:2] != valid.shape:
            return  # the comparison of the whole tap refuses it by name
        yield compare_arrays(f"{last} (valid positions)", ours[valid], reference[last][valid], rule)

    @functools.cached_property
    def _expected(self) -> tuple[Pass, Pass | None]:
        """The reference's pass and the oracle's in Paddle's names, without taps."""
        return tuple(
            side
            and dataclasses.replace(
                side,
                taps={},
                gradients=self.to_paddle(side.gradients),
                buffers=self.to_paddle(side.buffers),
            )
            for side in (self.reference_pass, self.oracle_pass)
        )

    def compare_gradients(self, ours: Pass, known: Known | None = None) -> Iterator[Comparison]:
        """Judge the loss and the gradients in backward order; absent ones must be absent."""
        reference, oracle = self._expected
        yield compare_arrays(
            "loss",
            ours.loss,
            reference.loss,
            TOLERANCES["loss", self.dtype],
            oracle=oracle.loss if oracle else None,
        )
        gradients = each(
            ours.gradients,
            backward_order(reference.gradients, self.reference_pass.gradients, self.plan.entries),
            self.case.tolerance("backward", self.dtype),
            oracle=oracle.gradients if oracle else None,
            zero_scale=self._largest_gradient,
            known=known,
        )
        yield from say_where_it_ends(gradients, reference.gradients)
        if reference.buffers:
            yield from each(
                ours.buffers,
                reference.buffers,
                self.case.tolerance("forward", self.dtype),
                oracle=oracle.buffers if oracle else None,
            )

    @functools.cached_property
    def _largest_gradient(self) -> float:
        gradients = self.reference_pass.gradients.values()
        return max((largest(gradient) for gradient in gradients), default=1.0)

    def compare_training(
        self, step: str, ours: TrainingRun, reference: TrainingRun, oracle: TrainingRun | None
    ) -> Iterator[Comparison]:
        """Judge losses, rates, weights, moments and the decayed set of a run.

        Args:
            step: ``optimizer`` or ``training``: whose tolerance.
            ours: Paddle's run.
            reference: PyTorch's, from :meth:`in_paddle_names`, as the oracle's.
            oracle: the reference's float64 run, when the pair is in float32.
        """
        tolerance = self.case.tolerance(step, self.dtype)
        yield from _curves(ours, reference, oracle, tolerance)
        yield from each(
            ours.state, reference.state, tolerance, oracle=oracle.state if oracle else None
        )
        if reference.average:
            yield from each(
                _prefixed("average", ours.average),
                _prefixed("average", reference.average),
                tolerance,
            )
        for kind, moments in reference.moments.items():
            second = (f"{step} second moment", self.dtype)
            yield from each(
                _prefixed(kind, ours.moments[kind]),
                _prefixed(kind, moments),
                TOLERANCES.get(second, tolerance) if kind == "exp_avg_sq" else tolerance,
                oracle=_prefixed(kind, oracle.moments[kind]) if oracle else None,
                zero_scale=max(largest(value) for value in moments.values()),
            )
        yield _decayed(ours.decayed, reference.decayed)


def each(
    ours: Mapping[str, np.ndarray],
    reference: Mapping[str, np.ndarray],
    tolerance: Tolerance,
    *,
    oracle: Mapping[str, np.ndarray] | None = None,
    zero_scale: float | None = None,
    known: Known | None = None,
) -> Iterator[Comparison]:
    """`align.comparator.compare_mappings`, one name after the other as they are asked for.

    Args:
        ours: Paddle's arrays by name.
        reference: PyTorch's arrays by name, in execution order.
        tolerance: the rule.
        oracle: float64 arrays by name.
        zero_scale: see `align.comparator.compare_arrays`.
        known: name -> (array, its comparison) judged before: the very same array of ours is not
            judged again.
    """
    names = dict.fromkeys([*reference, *ours])
    if not names:
        yield from compare_mappings({}, {}, tolerance)
    for name in names:
        judged = known.get(name) if known else None
        if judged is not None and ours.get(name) is judged[0]:
            yield judged[1]
            continue
        sides = ({name: side[name]} if name in side else {} for side in (ours, reference))
        yield from compare_mappings(*sides, tolerance, oracle=oracle, zero_scale=zero_scale)


def known_by_name(arrays: Mapping[str, np.ndarray], comparisons: Sequence[Comparison]) -> Known:
    """What `each` need not judge again: the arrays and their comparisons."""
    return {c.name: (arrays[c.name], c) for c in comparisons if c.name in arrays}


def largest(array: np.ndarray) -> float:
    """max|array|, without a temporary array."""
    return max(abs(float(array.max())), abs(float(array.min())))


def _prefixed(kind: str, arrays: Mapping[str, np.ndarray]) -> Arrays:
    return {f"{kind}/{name}": value for name, value in arrays.items()}


def _curves(
    ours: TrainingRun, reference: TrainingRun, oracle: TrainingRun | None, tolerance: Tolerance
) -> Iterator[Comparison]:
    """Losses and learning rates, where the run has any."""
    if reference.losses:
        judge = np.asarray(oracle.losses) if oracle else None
        sides = np.asarray(ours.losses), np.asarray(reference.losses)
        yield compare_arrays("losses", *sides, tolerance, oracle=judge)
    if reference.learning_rates:
        rates = np.asarray(ours.learning_rates), np.asarray(reference.learning_rates)
        yield compare_arrays("learning rates", *rates, TOLERANCES["learning_rate", None])


def _decayed(ours: set[str], expected: set[str]) -> Comparison:
    """Weight decay must apply to the same parameters, by name."""
    names = sorted(expected | ours)
    wrong = sorted(expected ^ ours)
    return compare_arrays(
        f"(decayed parameters{': ' + ', '.join(wrong) if wrong else ''})",
        np.asarray([name in ours for name in names], dtype="int64"),
        np.asarray([name in expected for name in names], dtype="int64"),
        _EXACT,
    )
