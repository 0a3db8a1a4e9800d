"""A pair of models with the same weights on the same batch, run once for several steps."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from align import paddle_side, torch_side
from align.bounds import TOLERANCES
from align.case_kinds import WORDS_DIM, Batch, ImageBatch, ModelCase, TimmCase
from align.checkpoint import encoder_arrays, find_checkpoint
from align.comparator import compare_arrays, compare_mappings
from align.results import Comparison, Tolerance
from align.sides import Arrays, Pass, TrainingRun
from align.weights import build_plan
from sot_paddle.data.tokenization import WordPieceTokenizer

_EXACT = Tolerance("exact", 0.0, "the order of execution is the same on both sides")


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
    ids = rng.integers(1, vocab, mask.shape) * mask  # padding id 0
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
    torch_side.torch.manual_seed(case.batch.seed)
    model = torch_side.build(case, "float64")
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
        state = draw_state(case, checkpoint)
        floating = {
            name: np.asarray(value, dtype if value.dtype == np.float64 else None)
            for name, value in state.items()
        }
        self.reference_state = floating
        layout = case.layout if isinstance(case, TimmCase) else "sot_torch_ref"
        self.plan = build_plan(layout, case.model, _planned_shapes(case, state))
        self.batch = make_batch(case, sentences=sentences, checkpoint=checkpoint)
        self.ours = self.build_ours()

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

    def build_ours(self):
        """A fresh Paddle model with the pair's weights."""
        return paddle_side.build(self.case, self.dtype, self.to_paddle(self.reference_state))

    def build_reference(self, dtype: str | None = None):
        """A fresh reference model; in float64 with the same, possibly rounded, weights."""
        dtype = dtype or self.dtype
        state = {
            name: np.asarray(value, dtype if value.dtype.kind == "f" else None)
            for name, value in self.reference_state.items()
        }
        return torch_side.build(self.case, dtype, state)

    @functools.cached_property
    def reference_pass(self) -> Pass:
        """The reference in the pair's precision."""
        return torch_side.run(
            self.build_reference(), self._cast(self.dtype), self.dtype, backward=self.has_backward
        )

    @functools.cached_property
    def oracle_pass(self) -> Pass | None:
        """The reference in float64, when the pair is in float32."""
        if not self.needs_oracle:
            return None
        return torch_side.run(
            self.build_reference("float64"),
            self._cast("float64"),
            "float64",
            backward=self.has_backward,
        )

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

    def compare_taps(self, taps: Mapping[str, np.ndarray]) -> list[Comparison]:
        """Judge taps of the Paddle side in execution order."""
        reference = self.reference_pass.taps
        order = compare_arrays(
            "(order of the taps)",
            np.asarray([list(taps).index(name) if name in taps else -1 for name in reference]),
            np.arange(len(reference)),
            _EXACT,
        )
        return [
            *self._compare_valid_positions(taps),
            *compare_mappings(
                taps,
                reference,
                self.case.tolerance("forward", self.dtype),
                oracle=self.oracle_pass.taps if self.oracle_pass else None,
            ),
            order,
        ]

    def _compare_valid_positions(self, taps: Mapping[str, np.ndarray]) -> list[Comparison]:
        """Real sentences in float32: last hidden states at valid positions, side against side.

        Padded positions are ill-conditioned; the oracle comparison that follows judges them, and
        the layers below, by PyTorch's own distance from float64.
        """
        rule = TOLERANCES.get(("valid positions", self.dtype))
        batch = self.case.batch
        if rule is None or not isinstance(batch, Batch) or not batch.sentences:
            return []
        valid = self.batch["attention_mask"].astype(bool)
        reference = self.reference_pass.taps
        last = [name for name in reference if name.startswith("layers.")][-1]
        ours = taps.get(last)
        if ours is None or ours.shape[:2] != valid.shape:
            return []  # the comparison of the whole tap refuses it by name
        return [
            compare_arrays(f"{last} (valid positions)", ours[valid], reference[last][valid], rule)
        ]

    def compare_gradients(self, ours: Pass) -> list[Comparison]:
        """Judge the loss and every gradient, in Paddle's names; absent ones must be absent."""
        reference, oracle = self.reference_pass, self.oracle_pass
        tolerance = self.case.tolerance("backward", self.dtype)
        expected = self.to_paddle(reference.gradients)
        judged = self.to_paddle(oracle.gradients) if oracle else None
        loss = compare_arrays(
            "loss",
            ours.loss,
            reference.loss,
            TOLERANCES["loss", self.dtype],
            oracle=oracle.loss if oracle else None,
        )
        scale = max((float(np.abs(g).max()) for g in expected.values()), default=1.0)
        gradients = compare_mappings(
            ours.gradients, expected, tolerance, oracle=judged, zero_scale=scale
        )
        buffers = self.to_paddle(reference.buffers)
        if not buffers:
            return [loss, *gradients]
        statistics = compare_mappings(
            ours.buffers,
            buffers,
            self.case.tolerance("forward", self.dtype),
            oracle=self.to_paddle(oracle.buffers) if oracle else None,
        )
        return [loss, *gradients, *statistics]

    def compare_training(
        self, step: str, ours: TrainingRun, reference: TrainingRun, oracle: TrainingRun | None
    ) -> list[Comparison]:
        """Judge losses, rates, final weights, moments and the decayed set of a run."""
        tolerance = self.case.tolerance(step, self.dtype)
        results = []
        curves: list[tuple[str, Callable[[TrainingRun], list[float]], Tolerance]] = [
            ("losses", lambda run: run.losses, tolerance),
            ("learning rates", lambda run: run.learning_rates, TOLERANCES["learning_rate", None]),
        ]
        for name, pick, rule in curves:
            if pick(reference):
                judge = np.asarray(pick(oracle)) if oracle and rule is tolerance else None
                results.append(
                    compare_arrays(
                        name,
                        np.asarray(pick(ours)),
                        np.asarray(pick(reference)),
                        rule,
                        oracle=judge,
                    )
                )
        results += compare_mappings(
            ours.state,
            self.to_paddle(reference.state),
            tolerance,
            oracle=self.to_paddle(oracle.state) if oracle else None,
        )
        if reference.average:
            results += compare_mappings(
                {f"average/{name}": value for name, value in ours.average.items()},
                {f"average/{n}": v for n, v in self.to_paddle(reference.average).items()},
                tolerance,
            )
        for kind, moments in reference.moments.items():
            second = (f"{step} second moment", self.dtype)
            rule = TOLERANCES.get(second, tolerance) if kind == "exp_avg_sq" else tolerance
            expected = self.to_paddle(moments)
            scale = max(float(np.abs(value).max()) for value in expected.values())
            judged = oracle and {
                f"{kind}/{n}": v for n, v in self.to_paddle(oracle.moments[kind]).items()
            }
            results += compare_mappings(
                {f"{kind}/{name}": value for name, value in ours.moments[kind].items()},
                {f"{kind}/{name}": value for name, value in expected.items()},
                rule,
                oracle=judged,
                zero_scale=scale,
            )
        results.append(self._compare_decayed(ours, reference))
        return results

    def _compare_decayed(self, ours: TrainingRun, reference: TrainingRun) -> Comparison:
        """Weight decay must apply to the same parameters, by name."""
        shapes = {name: np.empty(self.reference_state[name].shape) for name in reference.decayed}
        expected = set(self.to_paddle(shapes))
        names = sorted(expected | ours.decayed)
        wrong = sorted(expected ^ ours.decayed)
        return compare_arrays(
            f"(decayed parameters{': ' + ', '.join(wrong) if wrong else ''})",
            np.asarray([name in ours.decayed for name in names], dtype="int64"),
            np.asarray([name in expected for name in names], dtype="int64"),
            _EXACT,
        )
