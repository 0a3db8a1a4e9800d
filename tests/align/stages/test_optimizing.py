"""Stage `optimizer` on real optimizers of both frameworks: clean pairs, faults, refusals."""

from __future__ import annotations

import re
from types import SimpleNamespace

import numpy as np
import paddle
import pytest
import torch

from align.frameworks.live_models import unpack
from align.frameworks.on_torch import MOMENTS, as_paddle
from align.stages.training import optimizer, training
from tests.align.small_pairs import linears, model_of, pair_in

T, S = torch.optim, torch.optim.lr_scheduler
P, L = paddle.optimizer, paddle.optimizer.lr
LR = 1e-3


def net(f):
    """Two layers, a norm, a scalar, and a layer that never gets a gradient."""
    scale = torch.nn.Parameter(torch.tensor(1.5))
    if f is paddle:
        start = paddle.nn.initializer.Constant(1.5)
        scale = paddle.create_parameter([], "float32", default_initializer=start)

    def forward(model, x):
        return model.head(model.norm(model.fc(x))) * model.scale

    parts = {"fc": f.nn.Linear(3, 4), "norm": f.nn.LayerNorm(4), "head": f.nn.Linear(4, 2)}
    return model_of(f, forward, **parts, unused=f.nn.Linear(2, 3), scale=scale)


def pair_of(*given, dtype="float64", seed=0, steps=1, nets=None, weights=None):
    """Two nets with a pair of factories, or with the name of an optimizer."""
    inputs = np.random.default_rng(seed).normal(size=(5, 3))
    made = given[0] if len(given) == 1 else given
    given = {"optimizer": made, "steps": steps, "seed": seed, "weights": weights}
    nets = nets or (net(torch), net(paddle))
    return pair_in(*nets, inputs, dtype, **given)


def run(*given, **options):
    """The stage on such a pair."""
    return optimizer(pair_of(*given, **options))


def in_groups(model, **options):
    """Matrices, and the rest without decay."""
    named = list(model.named_parameters())
    return [
        {"params": [p for _, p in named if p.ndim > 1]},
        {"params": [p for _, p in named if p.ndim <= 1], "weight_decay": 0.0, **options},
    ]


def drawn(seed):
    """The same optimizer on both sides: kind, coefficients, groups, clipping, schedule."""
    rng = np.random.default_rng(seed)
    kind = ("sgd", "momentum", "nesterov", "adam", "adamw", "amsgrad")[seed % 6]
    rate, decay = float(10 ** rng.uniform(-5, -1)), float(rng.choice([0, 0.01, 0.05, 2**-7]))
    betas, eps = (float(rng.choice([0.9, 0.8])), 0.99), float(rng.choice([1e-8, 1e-6, 1e-12]))
    keep, clip = float(rng.choice([0.9, 0.5])), float(rng.choice([0.1, 1.0, 5.0]))
    grouped, clips = bool(rng.random() < 0.4), bool(rng.random() < 0.5)
    clips &= not grouped
    length = int(rng.integers(1, 5))

    def warming(t):
        return min(t / length, 1.0)

    def theirs(model):
        own = in_groups(model, lr=rate / 2) if grouped else model.parameters()
        shared = {"lr": rate, "weight_decay": decay}
        made = {
            "sgd": lambda: T.SGD(own, **shared),
            "momentum": lambda: T.SGD(own, momentum=keep, **shared),
            "nesterov": lambda: T.SGD(own, momentum=keep, nesterov=True, **shared),
            "adam": lambda: T.Adam(own, betas=betas, eps=eps, **shared),
            "adamw": lambda: T.AdamW(own, betas=betas, eps=eps, **shared),
            "amsgrad": lambda: T.AdamW(own, betas=betas, eps=eps, amsgrad=True, **shared),
        }[kind]()
        before = (lambda m: torch.nn.utils.clip_grad_norm_(m.parameters(), clip)) if clips else None
        return made, S.LambdaLR(made, warming), before

    def ours(model):
        own = in_groups(model, learning_rate=0.5) if grouped else model.parameters()
        schedule = L.LambdaDecay(rate, warming)
        shared = {"parameters": own, "weight_decay": decay}
        if clips:
            shared["grad_clip"] = paddle.nn.ClipGradByGlobalNorm(clip)
        made = {
            "sgd": lambda: P.SGD(schedule, **shared),
            "momentum": lambda: P.Momentum(schedule, keep, **shared),
            "nesterov": lambda: P.Momentum(schedule, keep, use_nesterov=True, **shared),
            "adam": lambda: P.Adam(schedule, *betas, eps, **shared),
            "adamw": lambda: P.AdamW(schedule, *betas, eps, **shared),
            "amsgrad": lambda: P.AdamW(schedule, *betas, eps, amsgrad=True, **shared),
        }[kind]()
        return made, schedule

    return theirs, ours


@pytest.mark.parametrize("seed", range(12))  # each kind twice
def test_equal_optimizers_of_both_frameworks_pass(seed) -> None:
    dtype = "float32" if seed % 5 == 4 else "float64"
    result, found = run(*drawn(seed), dtype=dtype, seed=seed, steps=1 + seed % 5)
    assert result.passed, (result.first_failure, result.problems)
    assert found == []
    assert all(control.caught for control in result.controls)


@pytest.mark.parametrize(
    "given", ["adamw", {"name": "sgd", "momentum": 0.9, "weight_decay": 0.01}, "sgd"]
)
def test_named_optimizers_pass_with_everything_compared_by_name(given) -> None:
    result, _ = run(given)
    assert result.passed, (result.first_failure, result.problems)
    names = {c.name for c in result.comparisons}
    assert {"update/scale", "step without gradients/unused.bias"} <= names
    moments_of = {"adamw": {"moment1", "moment2"}, "sgd": set()}
    kinds = {n.partition("/")[0] for n in names} & set(MOMENTS.values())
    assert kinds == (moments_of[given] if isinstance(given, str) else {"velocity"})


def adamw(**options):
    """PyTorch's AdamW."""
    return lambda model: T.AdamW(model.parameters(), lr=LR, **options)


def clipping(limit, make=None):
    """An optimizer of PyTorch after clip_grad_norm_."""

    def before(model):
        torch.nn.utils.clip_grad_norm_(model.parameters(), limit)

    return lambda model: ((make or adamw())(model), None, before)


def ours(kind=P.AdamW, rate=LR, **options):
    """An optimizer of Paddle."""
    return lambda model: kind(rate, parameters=model.parameters(), **options)


def scheduled(make, shape):
    """An optimizer of PyTorch under a schedule."""

    def theirs(model):
        made = make(model)
        return made, S.LambdaLR(made, shape)

    return theirs


def own_scheduled(shape, kind=P.AdamW, **options):
    """An optimizer of Paddle under a schedule."""

    def port(model):
        schedule = L.LambdaDecay(LR, shape)
        return ours(kind, schedule, **options)(model), schedule

    return port


def only(*names):
    """Paddle's AdamW that decays these."""

    def make(model):
        decayed = {p.name for n, p in model.named_parameters() if n in names}
        return ours(apply_decay_param_fun=lambda name: name in decayed)(model)

    return make


def doubled(model):
    """Decay by hand, and once more by the optimizer."""

    def before(layer):
        for parameter in layer.parameters():
            if parameter.grad is not None:
                parameter.set_value(parameter * (1 - LR * 0.01))

    return ours()(model), None, before


def frozen(model):
    """Forgets one parameter by stop_gradient."""
    model.norm.bias.stop_gradient = True
    return ours()(model)


class Accumulated(P.AdamW):
    """Sums two equal batches and does not divide."""

    def step(self) -> None:
        for parameter in self._parameter_list:
            if parameter.grad is not None:
                parameter.grad = parameter.grad * 2.0
        super().step()


def head_apart(factor):
    """The head in a group of its own, in Paddle."""

    def make(model):
        head = model.head.parameters()
        known = {id(p) for p in head}
        rest = [p for p in model.parameters() if id(p) not in known]
        groups = [{"params": rest}, {"params": head, "learning_rate": factor}]
        return P.AdamW(LR, parameters=groups, grad_clip=paddle.nn.ClipGradByGlobalNorm(1.0))

    return make


GLOBAL, VALUE = paddle.nn.ClipGradByGlobalNorm, paddle.nn.ClipGradByValue
AT_VALUE = "Paddle clips the value at 1, PyTorch clips the global norm at 1"
SQUARE_ROOT = "^perhaps no fault of the port: epsilon.s place in the square root: Paddle inside"
LIMIT = r"clipping limit \(global norm\): Paddle 5, PyTorch 1"
UNCLIPPED = "clipping missing: Paddle leaves gradients.* PyTorch clips the global norm"
SCALED = "before the update: Paddle scales gradients by 2, PyTorch leaves gradients"
SWAPPED = "beta1 and beta2 exchanged: Paddle 0.999 and 0.9, PyTorch"
ADAMAX = "^perhaps no fault of the port: epsilon.s place: Paddle adds it to the decayed norm"
DECAYS = "decays in PyTorch only: scale, fc.bias, norm.bias, head.weight"


def warming(t):
    """A warm-up from zero, which is stepped over."""
    return min(t / 4, 1.0)


def rmsprop(model):
    return T.RMSprop(model.parameters(), lr=LR, alpha=0.95, eps=1e-6)


def sgd(model):
    return T.SGD(model.parameters(), lr=LR)


def momentum(**options):
    return lambda model: T.SGD(model.parameters(), lr=LR, momentum=0.9, **options)


FAULTS = {
    "coefficient": (adamw(), ours(weight_decay=0.03), "Paddle 0.03, PyTorch 0.01"),
    "decay set": (adamw(), only("fc.weight", "norm.weight"), DECAYS, "scale"),
    "Adam": (adamw(), ours(P.Adam, weight_decay=0.01), "^L2 instead of decoupled decay; with"),
    "doubled": (adamw(), doubled, "^$"),
    "epsilon": (adamw(), ours(epsilon=1e-6), "epsilon: Paddle 1e-06, PyTorch 1e-08"),
    "epsilon in a warm-up": (
        scheduled(adamw(), warming),
        own_scheduled(warming, epsilon=1e-6),
        "epsilon: Paddle 1e-06, PyTorch 1e-08",
    ),
    "betas": (adamw(), ours(beta1=0.999, beta2=0.9), SWAPPED),
    "amsgrad": (adamw(), ours(amsgrad=True), "amsgrad: only Paddle"),
    "no clipping": (clipping(1.0), ours(), UNCLIPPED),
    "limit": (clipping(1.0), ours(grad_clip=GLOBAL(5.0)), LIMIT),
    "value": (clipping(1.0), ours(grad_clip=VALUE(1.0)), AT_VALUE),
    "groups clipped apart": (clipping(1.0), head_apart(1.0), "clips the norm of each group at 1"),
    "rate of a group": (
        adamw(),
        head_apart(0.5),
        "rate applied .* of head.weight",
        "head.weight",
    ),
    "frozen": (adamw(), frozen, "not in Paddle's optimizer: norm.bias", "norm.bias"),
    "accumulated": (adamw(), ours(Accumulated), SCALED),
    "nesterov": (
        momentum(),
        ours(P.Momentum, momentum=0.9, use_nesterov=True),
        "nesterov: only Paddle",
    ),
    "decay of a momentum": (
        lambda model: T.SGD(in_groups(model), lr=LR, momentum=0.9, weight_decay=0.1),
        ours(P.Momentum, momentum=0.9, weight_decay=0.1),
        "^decay set: decays in Paddle only: scale, .*; with PyTorch's the step agrees",
        "scale",
    ),
    "RMSProp": (rmsprop, ours(P.RMSProp, rho=0.95, epsilon=1e-6), SQUARE_ROOT),
    "Adamax": (lambda model: T.Adamax(model.parameters(), lr=LR), ours(P.Adamax), ADAMAX),
}
"""Both factories, the cause, and the place where that is not the optimizer."""


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *((name, "float64") for name in FAULTS),
        *((name, "float32") for name in ("epsilon", "no clipping", "frozen")),
    ],
)
def test_a_fault_is_found_placed_and_named(name, dtype) -> None:
    theirs, wrong, expected, *place = FAULTS[name]
    result, found = run(theirs, wrong, dtype=dtype)
    assert not result.passed
    assert found[0].place == (place or ["optimizer"])[0], found
    assert re.search(expected, found[0].cause), found[0].cause
    assert found[0].step == "optimizer"
    assert found[0].name in {c.name for c in result.failures}
    assert "test_optimizing.py" in found[0].source


class SignDescent(P.SGD):
    """Steps by the sign of the gradient, which no edit of a known rule makes."""

    def step(self) -> None:
        for parameter in self._parameter_list:
            if parameter.grad is not None:
                parameter.set_value(parameter - LR * paddle.sign(parameter.grad))


@pytest.mark.parametrize(
    ("theirs", "port", "expected"),
    [
        (
            adamw(),
            ours(beta1=0.8, weight_decay=0.05),
            ["weight decay coefficient: Paddle 0.05", "beta1: Paddle 0.8, PyTorch 0.9; with"],
        ),
        (
            clipping(1.0),
            ours(epsilon=1e-6, beta2=0.99),
            ["clipping missing", "beta2 and epsilon: Paddle 0.99 and 1e-06, PyTorch 0.999 and 1e-"],
        ),
        (
            sgd,
            ours(SignDescent, rate=2 * LR),
            ["perhaps the learning rate applied to the update: Paddle 0.002, PyTorch 0.001"],
        ),
        (sgd, ours(SignDescent), [""]),
    ],
)
def test_several_faults_are_all_named_and_what_no_experiment_proves_is_a_guess(
    theirs, port, expected
) -> None:
    _, found = run(theirs, port)
    causes = [one.cause for one in found]
    assert len(causes) == len(expected), causes
    assert all(cause.startswith(said) for cause, said in zip(causes, expected, strict=True)), causes


def test_a_reference_with_paddles_numbers_follows_paddle_to_rounding() -> None:
    """Momentum and the decay are float32 in Paddle, and it clips by the plain norm."""
    weights = np.random.default_rng(1).normal(size=(4, 3))
    given = [np.random.default_rng(i).normal(size=(4, 3)) for i in range(4)]
    found = []
    for follows in (False, True):
        theirs = torch.nn.Linear(3, 4, bias=False).double()
        theirs.weight.data = torch.tensor(weights)
        heavy = lambda model: T.SGD(model.parameters(), 0.1, 0.9, weight_decay=0.01)  # noqa: E731
        made, _ = unpack(clipping(0.5, heavy)(theirs), theirs)
        if follows:
            as_paddle(made, ("momentum", "weight_decay"), 0.5)
        port = paddle.nn.Linear(4, 3, bias_attr=False).to(dtype="float64")
        port.weight.set_value(weights)
        mine = ours(P.Momentum, 0.1, momentum=0.9, weight_decay=0.01, grad_clip=GLOBAL(0.5))(port)
        for gradient in given:
            theirs.weight.grad, port.weight.grad = map(
                lambda make, g=gradient: make(g.copy()), (torch.tensor, paddle.to_tensor)
            )
            made.step(), mine.step()
        found.append(np.abs(theirs.weight.detach().numpy() - port.weight.numpy()).max())
    assert found[0] > 1e-9
    assert found[1] < 1e-14


def test_a_rate_one_step_early_does_not_undo_the_planted_one() -> None:
    def shape(t):
        return 0.5 ** max(0, t - 1)

    pair = pair_of(scheduled(sgd, shape), own_scheduled(lambda t: shape(t + 1), P.SGD), steps=4)
    result, _ = training(pair)
    assert not result.passed
    assert result.problems == []


class Descent(P.SGD):
    """A class of the user's own, with the kernel of its base."""


class Heavy(P.Momentum):
    """Likewise: it holds momentum and weight decay in float32."""


RIGHT = {
    "a class of the user's own that clips": (
        clipping(0.5, lambda model: T.SGD(model.parameters(), lr=0.1)),
        ours(Descent, 0.1, grad_clip=paddle.nn.ClipGradByGlobalNorm(0.5)),
    ),
    "RMSProp": (
        lambda model: T.RMSprop(model.parameters(), 0.01, 0.95, 1e-30, 0.1),
        ours(P.RMSProp, 0.01, rho=0.95, epsilon=1e-30, weight_decay=0.1),
    ),
    "RMSProp with a momentum": (
        lambda model: T.RMSprop(model.parameters(), 0.01, 0.95, 1e-30, momentum=0.9),
        ours(P.RMSProp, 0.01, rho=0.95, epsilon=1e-30, momentum=0.9),
    ),
    "a momentum of the user's own class": (
        lambda model: T.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1),
        ours(Heavy, 0.1, momentum=0.9, weight_decay=0.1),
    ),
    "Adagrad": (
        lambda model: T.Adagrad(model.parameters(), 0.1, weight_decay=0.1, eps=0.01),
        ours(P.Adagrad, 0.1, epsilon=0.01, weight_decay=0.1),
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_training_with_other_numbers_in_paddles_kernel_passes(name) -> None:
    pair = pair_of(*RIGHT[name], steps=5)
    for stage in (optimizer, training):
        result, _ = stage(pair)
        assert result.passed, (result.first_failure, result.problems)


def packed() -> tuple[torch.nn.Module, paddle.nn.Layer]:
    """Two projections that are one in Paddle, and one too large to keep whole."""

    def forward(model, x):
        return model.wide(model.q(x) * model.k(x))

    def ported(model, x):
        q, k = model.both(x).split(2, -1)
        return model.wide(q * k)

    parts = {**linears(torch, "q k", 3, 4), "wide": torch.nn.Linear(4, 700)}
    both, wide = paddle.nn.Linear(3, 8), paddle.nn.Linear(4, 700)
    return model_of(torch, forward, **parts), model_of(paddle, ported, both=both, wide=wide)


PACKED = {f"{n}.weight": f"both.weight[{i}/2]" for i, n in enumerate("qk")}
PACKED |= {f"{n}.bias": f"both.bias[{i}/2]" for i, n in enumerate("qk")}


def test_packed_and_sampled_tensors_are_followed() -> None:
    result, _ = run("adamw", nets=packed(), weights=PACKED)
    assert result.passed, (result.first_failure, result.problems)
    _, found = run(adamw(), ours(beta2=0.99), nets=packed(), weights=PACKED)
    assert found[0].cause.startswith("beta2: Paddle 0.99, PyTorch 0.999")


@pytest.mark.parametrize(
    ("theirs", "port", "message"),
    [
        (lambda m: T.LBFGS(m.parameters()), ours(), "LBFGS.step.. needs an argument"),
        (
            lambda m: (lambda o: (o, S.ReduceLROnPlateau(o)))(sgd(m)),
            ours(),
            "ReduceLROnPlateau.step.. needs an argument",
        ),
        (adamw(), ours(rate=0.0), "Paddle's rate is 0 in its first 100 steps"),
        (adamw(), ours(grad_clip=paddle.nn.ClipGradByNorm(1.0)), "AdamW.step.. failed .*float64"),
        (lambda m: (1, 2, 3, 4, 5), ours(), "got 5 values"),
        (lambda m: (adamw()(m), "cosine"), ours(), "its scheduler is a str without step"),
        (lambda m: (adamw()(m), adamw()(m)), ours(), "got two optimizers, expected one"),
    ],
)
def test_what_cannot_be_followed_is_refused(theirs, port, message) -> None:
    with pytest.raises(ValueError, match=message):
        run(theirs, port)


def test_a_module_without_parameters_is_refused() -> None:
    with pytest.raises(ValueError, match="no trainable parameter"):
        run("sgd", nets=(torch.nn.Tanh, paddle.nn.Tanh))


def test_before_step_runs_ahead_of_every_step_on_both_sides() -> None:
    theirs, own = torch.nn.Linear(2, 2), paddle.nn.Linear(2, 2)
    for model, made in ((theirs, sgd(theirs)), (own, ours(P.SGD)(own))):
        seen = []
        wrapped, scheduler = unpack((made, None, seen.append), model)
        assert scheduler is None
        wrapped.step()
        wrapped.step()
        assert seen == [model, model]


def test_a_moving_average_under_other_names_is_refused() -> None:
    def averaging(make):
        average = SimpleNamespace(update=lambda: None, arrays=lambda: {"w": np.zeros(3)})
        return lambda model: (make(model), None, None, average)

    factories, inputs = (averaging(sgd), averaging(ours(P.SGD))), np.ones((5, 3))
    pair = pair_in(net(torch), net(paddle), inputs, optimizer=factories, steps=1)
    with pytest.raises(ValueError, match="PyTorch side has the name 'w', expected names of the"):
        training(pair)
