"""A pair of models with the same weights on the same batch, run once for several steps."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from align.cases.kinds.case_kinds import WORDS_DIM, Batch, ImageBatch, ModelCase, TimmCase
from align.cases.sides import paddle_side, torch_side
from align.cases.sides.checkpoint import encoder_arrays, find_checkpoint
from align.frameworks.moved_roundings import MovedRoundings
from align.judge.backward_order import backward_order, say_where_it_ends
from align.judge.bounds import TOLERANCES
from align.judge.comparator import Settle, compare_arrays, compare_mappings
from align.judge.noise_band import Kinds, NoiseBand
from align.record.arrays import Arrays, Pass, TrainingRun
from align.record.results import Comparison
from align.record.stored_arrays import Store
from align.record.tolerance import Tolerance
from align.weights import build_plan
from sot_paddle.data.tokenization import WordPieceTokenizer
from sot_paddle.runtime import return_freed_memory

_STEP_OF = {"loss": "loss", "gradients": "backward", "buffers": "forward"}
_LARGE = 2**27  # bytes of weights from which on one copy of them is kept at a time
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
    """:func:`draw_state` from the freshly built reference; what is not moved stays shared."""
    state = {name: value.numpy() for name, value in model.state_dict().items()}
    rng = np.random.default_rng(case.batch.seed)
    for name, value in state.items():
        if name.endswith("running_var"):
            state[name] = rng.uniform(0.5, 1.5, value.shape)
        elif value.ndim <= 1 and value.dtype == np.float64:
            state[name] = np.asarray(value + 0.1 * rng.normal(size=value.shape))
        elif name.startswith("head.") and value.dtype == np.float64:
            state[name] = value * 3.0  # scores of order one instead of nearly constant ones
        elif name.endswith("attn.qkv.weight"):
            # of std .02 a small model would attend to all tokens alike: rows of length one
            state[name] = value / np.linalg.norm(value, axis=1, keepdims=True)
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


class CasePair:
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
        self._large = sum(value.nbytes for value in state.values()) >= _LARGE

    @functools.cached_property
    def ours(self):
        """The Paddle model with the pair's weights."""
        return paddle_side.build(self.case, self.dtype, self.to_paddle(self.reference_state))

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

    def fresh_reference(self, dtype: str | None = None, moves: MovedRoundings | None = None):
        """The reference with the pair's weights put back: in float64 the rounded ones, or moved."""
        dtype = dtype or self.dtype
        if dtype not in self._references:
            self._references[dtype] = torch_side.build(self.case, dtype)
        model, state = self._references[dtype], self.reference_state
        torch_side.load_state(model, moves.arrays(state) if moves else state)
        return model

    @functools.cached_property
    def reference_pass(self) -> Pass:
        """The reference in the pair's precision."""
        return self._run_reference(self.dtype)

    @functools.cached_property
    def oracle_pass(self) -> Pass | None:
        """The reference in float64, when the pair is in float32."""
        return self._run_reference("float64") if self.needs_oracle else None

    def _run_reference(self, dtype: str, moves: MovedRoundings | None = None) -> Pass:
        """A pass of the reference, of everything moved if asked; a large model is freed after."""
        state, batch = self.reference_state, self._cast(dtype)
        if moves:
            state, batch = moves.arrays(state), moves.arrays(batch)
        if dtype not in self._references:
            self._references[dtype] = torch_side.build(self.case, dtype)
        keep = moves or not self._large
        model = self._references[dtype] if keep else self._references.pop(dtype)
        torch_side.lend_state(model, state)
        with moves or contextlib.nullcontext():
            found = torch_side.run(model, batch, dtype, backward=self.has_backward)
        del model
        return dataclasses.replace(found, gradients=self._kept(found.gradients))

    def _kept(self, arrays: Arrays) -> Mapping[str, np.ndarray]:
        """The arrays; those of a large model wait in a file and are read one by one."""
        if not self._large:
            return arrays
        kept = Store(room=0).keep(arrays)
        arrays.clear()
        return_freed_memory()
        return kept

    @functools.cached_property
    def noise(self) -> NoiseBand | None:
        """What rounding does to taps, loss, gradients and running statistics (float32 only)."""
        if not self.needs_oracle:
            return None
        return NoiseBand(
            lambda: self._expected[1],
            lambda seed: contextlib.nullcontext(
                self._kinds(self._run_reference(self.dtype, MovedRoundings(seed)))
            ),
        )

    def _kinds(self, side: Pass) -> Kinds:
        """Arrays of a pass of the reference by kind, in Paddle's names."""
        return {
            "taps": {**side.taps, **self._valid_positions(side.taps)},
            "loss": {"loss": side.loss},
            "gradients": self._kept(self._backward_order(side.gradients)),
            "buffers": self.to_paddle(side.buffers),
        }

    def _backward_order(self, gradients: Mapping[str, np.ndarray]) -> Arrays:
        return backward_order(self.to_paddle(gradients), gradients, self.plan.entries)

    def _noise_of(self, kind: str) -> Settle | None:
        return self.noise and self.noise.of(kind)

    @functools.cached_property
    def ours_pass(self) -> Pass:
        """The Paddle side; what a large model's reference needed is freed before it runs."""
        if self._large:
            _ = self._expected, self.ours
            if not self.needs_oracle:
                self.reference_state = {}  # noise is measured later, if at all
            return_freed_memory()
        return self.run_ours(backward=self.has_backward)

    def forget_gradients(self) -> None:
        """Free our gradients of a large model, before a control makes others."""
        if self._large:
            self.ours_pass.gradients.clear()
            return_freed_memory()

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
        oracle = self.oracle_pass.taps if self.oracle_pass else None
        for select in (self._valid_positions, dict):
            if not select(reference):
                continue
            yield from each(
                select(taps),
                select(reference),
                TOLERANCES["forward", self.dtype],
                oracle=select(oracle) if oracle else None,
                known=known,
                noise=self._noise_of("taps"),
            )
        yield compare_arrays(
            "(order of the taps)",
            np.asarray([list(taps).index(name) if name in taps else -1 for name in reference]),
            np.arange(len(reference)),
            _EXACT,
        )

    def _valid_positions(self, taps: Mapping[str, np.ndarray]) -> Arrays:
        """Of real sentences the last hidden states at valid positions, beside the whole tap.

        Padded positions are ill-conditioned and have wide bands; the words themselves have not.
        """
        batch = self.case.batch
        if not isinstance(batch, Batch) or not batch.sentences:
            return {}
        valid = self.batch["attention_mask"].astype(bool)
        last = [name for name in self.reference_pass.taps if name.startswith("layers.")][-1]
        if last not in taps or taps[last].shape[:2] != valid.shape:
            return {}  # the comparison of the whole tap refuses it by name
        return {f"{last} (valid positions)": taps[last][valid]}

    @functools.cached_property
    def _expected(self) -> tuple[Kinds, Kinds | None]:
        """The reference's pass and the oracle's by kind, in Paddle's names."""
        oracle = self._kinds(self.oracle_pass) if self.oracle_pass else None
        return self._kinds(self.reference_pass), oracle

    def compare_gradients(self, ours: Pass, known: Known | None = None) -> Iterator[Comparison]:
        """Judge the loss and the gradients in backward order; absent ones must be absent."""
        reference, oracle = self._expected
        parts = (
            ("loss", {"loss": ours.loss}, None),
            ("gradients", ours.gradients, self._largest_gradient),
            ("buffers", ours.buffers, None),
        )
        for kind, arrays, zero_scale in parts:
            if not (reference[kind] or arrays):
                continue
            judged = each(
                arrays,
                reference[kind],
                TOLERANCES[_STEP_OF[kind], self.dtype],
                oracle=oracle and oracle[kind],
                zero_scale=zero_scale,
                known=known,
                noise=self._noise_of(kind),
            )
            if kind == "gradients":
                judged = say_where_it_ends(judged, reference[kind])
            yield from judged

    @functools.cached_property
    def _largest_gradient(self) -> float:
        gradients = self.reference_pass.gradients
        return max((largest(gradients[name]) for name in gradients), default=1.0)

    def compare_training(
        self,
        step: str,
        ours: TrainingRun,
        reference: TrainingRun,
        oracle: TrainingRun | None,
        noise: Callable[[str], Settle] | None = None,
    ) -> Iterator[Comparison]:
        """Judge losses, rates, weights, moments and the decayed set of a run.

        Args:
            step: ``optimizer`` or ``training``: whose tolerance.
            ours: Paddle's run.
            reference: PyTorch's, from :meth:`in_paddle_names`, as the oracle's.
            oracle: the reference's float64 run, when the pair is in float32.
            noise: what rounding does to a kind of `entries`, when the pair is in float32.
        """
        rule = TOLERANCES[step, self.dtype]
        expected = entries(reference)
        found, judge = entries(ours), entries(oracle) if oracle else {}
        for kind, arrays in expected.items():
            own = TOLERANCES.get(("second moments", self.dtype), rule)
            moments = kind in reference.moments
            yield from each(
                found.get(kind, {}),
                arrays,
                own if kind == "exp_avg_sq" else rule,
                oracle=judge.get(kind),
                zero_scale=max(map(largest, arrays.values())) if moments else None,
                noise=noise and noise(kind),
            )
        if reference.learning_rates:
            rates = np.asarray(ours.learning_rates), np.asarray(reference.learning_rates)
            yield compare_arrays("learning rates", *rates, TOLERANCES["learning_rate", None])
        yield _decayed(ours.decayed, reference.decayed)


def entries(run: TrainingRun) -> Kinds:
    """What a run leaves, by kind: losses, state, moving average, moments; what it has of them."""
    kinds = {
        "losses": {"losses": np.asarray(run.losses)} if run.losses else {},
        "state": run.state,
        "average": _prefixed("average", run.average),
        **{kind: _prefixed(kind, values) for kind, values in run.moments.items()},
    }
    return {kind: arrays for kind, arrays in kinds.items() if arrays}


def each(
    ours: Mapping[str, np.ndarray],
    reference: Mapping[str, np.ndarray],
    tolerance: Tolerance,
    *,
    oracle: Mapping[str, np.ndarray] | None = None,
    zero_scale: float | None = None,
    known: Known | None = None,
    noise: Settle | None = None,
) -> Iterator[Comparison]:
    """`align.judge.comparator.compare_mappings`, one name after the other as they are asked for.

    Args:
        ours: Paddle's arrays by name.
        reference: PyTorch's arrays by name, in execution order.
        tolerance: the rule.
        oracle: float64 arrays by name.
        zero_scale: see `align.judge.comparator.compare_arrays`.
        known: name -> (array, its comparison) judged before: the very same array of ours is not
            judged again.
        noise: see `align.judge.comparator.compare_arrays`.
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
        options = {"oracle": oracle, "zero_scale": zero_scale, "noise": noise}
        yield from compare_mappings(*sides, tolerance, **options)


def known_by_name(arrays: Mapping[str, np.ndarray], comparisons: Sequence[Comparison]) -> Known:
    """What `each` need not judge again: the arrays and their comparisons."""
    return {c.name: (arrays[c.name], c) for c in comparisons if c.name in arrays}


def largest(array: np.ndarray) -> float:
    """max|array|, without a temporary array."""
    return max(abs(float(array.max())), abs(float(array.min())))


def _prefixed(kind: str, arrays: Mapping[str, np.ndarray]) -> Arrays:
    return {f"{kind}/{name}": value for name, value in arrays.items()}


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
