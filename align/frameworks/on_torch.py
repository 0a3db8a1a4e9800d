"""The PyTorch side of any pair: prepare, load, run, train; NumPy in, NumPy out."""

from __future__ import annotations

import contextlib
import copy
import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn.utils import rnn

from align.frameworks.live_models import CLIP_EPS, HELD_IN_FLOAT32, unpack
from align.record.arrays import Arrays, Entry, leaves, once, qualified_types, replace
from align.record.recording import ROOT
from align.record.request import Request

FUNCTIONAL = torch.nn.functional
cross_entropy = FUNCTIONAL.cross_entropy
is_floating = torch.is_floating_point

NAME, MODEL = "PyTorch", "PyTorch module"
MOMENTS = {
    "exp_avg": "moment1",
    "exp_avg_sq": "moment2",
    "max_exp_avg_sq": "moment2_max",
    "momentum_buffer": "velocity",
    "square_avg": "mean_square",
}
"""PyTorch's name of a moment -> Paddle's, which is ours."""


@contextlib.contextmanager
def default_dtype(dtype: str) -> Iterator[None]:
    """Build and run in ``dtype``, then restore the default."""
    previous = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, dtype))
    try:
        yield
    finally:
        torch.set_default_dtype(previous)


def is_tensor(value: Any) -> bool:
    """Whether a value is this framework's tensor."""
    return isinstance(value, torch.Tensor)


def numpy(tensor: torch.Tensor) -> np.ndarray:
    """A copy as NumPy array; low precision as float32, a sparse gradient with its zeros."""
    low = tensor.dtype in (torch.bfloat16, torch.float16)
    tensor = tensor.to_dense() if tensor.is_sparse else tensor
    return (tensor.float() if low else tensor).detach().cpu().numpy().copy()


def view(tensor: torch.Tensor) -> np.ndarray:
    """Return a tensor as NumPy array for a look: its own memory where NumPy can read that."""
    copied = tensor.is_sparse or tensor.dtype in (torch.bfloat16, torch.float16)
    return numpy(tensor) if copied else tensor.detach().cpu().numpy()


def tensor(array: np.ndarray) -> torch.Tensor:
    """A tensor that owns its memory, on the device of the run."""
    return torch.from_numpy(np.array(array, order="C")).to(torch.empty(0).device)


def leaf(array: np.ndarray) -> torch.Tensor:
    """A tensor that owns its memory and collects a gradient."""
    return tensor(array).requires_grad_(True)


def needs_gradient(value: torch.Tensor) -> bool:
    """Whether a gradient will arrive at a tensor."""
    return value.requires_grad and value.is_floating_point()


def hook(module: torch.nn.Module, before: Callable, after: Callable) -> contextlib.ExitStack:
    """Register both hooks; they are removed when what is returned is closed.

    Of packed sequences, which Paddle does not have, the hook behind gets the padded tensor, without
    a gradient, and the one before nothing: other numbers may stand in the padding there.
    """
    first = getattr(module, "batch_first", True)

    def entering(called: Any, args: tuple, kwargs: dict) -> Any:
        bare = replace((args, kwargs), _is_packed, lambda _, packed: _Kept(packed))
        changed = before(called, *bare)
        return changed and replace(changed, lambda x: isinstance(x, _Kept), lambda _, x: x.packed)

    def pad(_: str, packed: rnn.PackedSequence) -> torch.Tensor:
        batch = rnn.pad_packed_sequence(packed, first)[0].detach()
        batch.padded = True
        return batch

    def leaving(called: Any, args: tuple, kwargs: dict, output: Any) -> Any:
        packed = dict(leaves(output, _is_packed))
        changed = after(called, args, kwargs, replace(output, _is_packed, pad))
        return replace(changed, is_tensor, lambda at, value: packed.get(at, value))

    hooks = contextlib.ExitStack()
    hooks.callback(module.register_forward_pre_hook(entering, with_kwargs=True).remove)
    hooks.callback(module.register_forward_hook(leaving, with_kwargs=True).remove)
    return hooks


class _Kept:
    """A packed sequence in which no tensor is looked for."""

    def __init__(self, packed: rnn.PackedSequence) -> None:
        self.packed = packed


def _is_packed(value: Any) -> bool:
    return isinstance(value, rnn.PackedSequence)


def modules(model: torch.nn.Module) -> dict[str, torch.nn.Module]:
    """Every module once, by name, the model itself as ROOT."""
    return {name or ROOT: module for name, module in model.named_modules()}


def entries(model: torch.nn.Module) -> list[Entry]:
    """Every name of the state dict, in its order; tied names share their identity."""
    owners = dict(model.named_modules(remove_duplicate=False))
    parameters = dict(model.named_parameters(remove_duplicate=False))
    listed = []
    for name, value in model.state_dict(keep_vars=True).items():
        if not is_tensor(value):
            raise ValueError(f"PyTorch {name}: the state dict holds a {type(value).__name__}")
        layer, parametrized, _ = name.partition("parametrizations.")
        owner = layer.rstrip(".") if parametrized else name.rpartition(".")[0]
        listed.append(
            Entry(
                name=name,
                shape=tuple(value.shape),
                dtype=str(value.dtype).removeprefix("torch."),
                owner=owner or ROOT,
                types=qualified_types(owners.get(owner, model)),
                trainable=name in parameters and value.requires_grad,
                buffer=name not in parameters,
                identity=id(value),
            )
        )
    return listed


def named(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Every live tensor by canonical name."""
    return once(model.state_dict(keep_vars=True))


def state(model: torch.nn.Module) -> Arrays:
    """Every tensor by canonical name."""
    return {name: numpy(value) for name, value in named(model).items()}


def load(model: torch.nn.Module, arrays: Mapping[str, np.ndarray]) -> None:
    """Overwrite tensors by canonical name; floating arrays are cast to the model's dtype."""
    tensors = model.state_dict(keep_vars=True)
    with torch.no_grad():
        for name, array in arrays.items():
            tensors[name].copy_(torch.from_numpy(np.require(array, requirements="CW")))


def prepare(plan: Request, dtype: str, train: bool) -> torch.nn.Module:
    """A model of the user's module in one precision, apart from the user's own object."""
    with default_dtype(dtype):
        if isinstance(plan.torch_module, torch.nn.Module):
            model = copy.deepcopy(plan.torch_module)
        else:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(plan.seed)
                model = plan.torch_module()
        if not isinstance(model, torch.nn.Module):
            raise ValueError(
                f"torch_module: got {type(model).__name__}, expected a torch.nn.Module or a "
                "callable without arguments that builds one"
            )
        model = model.to(getattr(torch, dtype))
    for module in model.modules():
        if isinstance(module, torch.nn.RNNBase):
            module.dropout = 0.0  # it drops inside its kernel
    picks = plan.picks(0)
    if picks is not None:
        model.register_forward_hook(lambda _, __, output: picks(output))
    set_mode(model, train)
    return model


def set_mode(model: torch.nn.Module, train: bool) -> None:
    """Training or eval mode."""
    model.train(train)


def generators() -> list[Any]:
    """States of the generators that a model may draw from; equal where nothing was drawn."""
    states = [torch.get_rng_state()]
    if torch.cuda.is_initialized():
        states += torch.cuda.get_rng_state_all()
    _, words, *rest = np.random.get_state()
    return [*(rng.tolist() for rng in states), random.getstate(), words.tolist(), rest]


def clear(model: torch.nn.Module) -> None:
    """Forget the gradients."""
    model.zero_grad(set_to_none=True)


def backward(loss: torch.Tensor) -> None:
    """Run the backward pass of a scalar."""
    if loss.requires_grad:
        loss.backward()


def stamp(value: torch.Tensor) -> dict[str, Any]:
    """Who computed a tensor, read off its type."""
    return {
        "framework": type(value).__module__.split(".")[0],
        "version": torch.__version__,
        "device": str(value.device),
        "dtype": str(value.dtype).removeprefix("torch."),
    }


def average_pools() -> contextlib.AbstractContextManager[list[str]]:
    """None of Paddle's run here."""
    return contextlib.nullcontext([])


def follow_paddle(model: torch.nn.Module, names: list[str]) -> None:
    """Let these norms use the numbers that Paddle's kernels use, and its running variance.

    PADDLE: epsilon and momentum are float32 in every precision (1e-5 becomes 9.99999975e-06), and
    the running variance takes the biased variance of the batch, PyTorch's the unbiased one.
    """
    kept: dict[int, torch.Tensor] = {}

    def before(module: torch.nn.Module, _: tuple) -> None:
        kept[id(module)] = module.running_var.clone()

    def after(module: torch.nn.Module, args: tuple, __: Any) -> None:
        if not module.training:
            return
        count = args[0].numel() / args[0].shape[1]
        momentum = module.momentum
        if momentum is None:
            momentum = 1.0 / float(module.num_batches_tracked)
        rest = (1 - momentum) * kept[id(module)]
        biased = rest + (module.running_var - rest) * (count - 1) / count
        module.running_var.data.copy_(biased)  # .data: the graph holds the buffer, unused

    module_of = modules(model)
    for name in names:
        module = module_of[name]
        if isinstance(getattr(module, "eps", None), float):
            module.eps = float(np.float32(module.eps))
        if not isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
            continue
        if isinstance(module.momentum, float):
            module.momentum = 1.0 - float(np.float32(1.0 - module.momentum))
        if module.track_running_stats:
            module.register_forward_pre_hook(before)
            module.register_forward_hook(after)


def make_optimizer(plan: Request, model: torch.nn.Module) -> tuple[Any, Any]:
    """The plan's optimizer and scheduler (None without)."""
    if not isinstance(plan.optimizer, Mapping):
        return unpack(plan.optimizer[0](model), model)
    options, trained = dict(plan.optimizer), [p for p in model.parameters() if p.requires_grad]
    if options.pop("name") == "sgd":
        return torch.optim.SGD(trained, **options), None
    options["betas"] = options.pop("beta1"), options.pop("beta2")
    # fused: the same rule in one pass over the memory, a quarter of the time
    return torch.optim.AdamW(trained, fused=True, **options), None


def live_moments(optimizer: Any, model: torch.nn.Module) -> dict[str, dict[str, torch.Tensor]]:
    """Canonical parameter name -> kind of moment -> the optimizer's own tensor.

    PADDLE: RMSProp's accumulator of the momentum holds rate x PyTorch's buffer: neither is a moment
    that can be compared.
    """
    names = {parameter: name for name, parameter in model.named_parameters()}
    moments: dict[str, dict[str, torch.Tensor]] = {}
    for parameter, slots in optimizer.state.items():
        kinds = dict(MOMENTS)
        if kind_of(optimizer) == "RMSprop":
            del kinds["momentum_buffer"]
        tensors = {kind: slots.get(key) for key, kind in kinds.items()}
        moments[names[parameter]] = {k: t for k, t in tensors.items() if is_tensor(t)}
    return moments


_FLOATS = ("weight_decay", "eps", "momentum", "dampening", "alpha", "rho", "lr_decay")


def parameters(model: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """The trainable parameters by canonical name."""
    return {n: p for n, p in model.named_parameters() if p.requires_grad and p.is_floating_point()}


def groups(optimizer: Any, model: torch.nn.Module) -> list[list[str]]:
    """Names of the trainable parameters of each group."""
    names = {id(parameter): name for name, parameter in parameters(model).items()}
    return [
        [names[id(p)] for p in group["params"] if id(p) in names]
        for group in optimizer.param_groups
    ]


def rates(optimizer: Any, model: torch.nn.Module) -> list[float]:
    """The rate that the next step applies to each group."""
    return [float(group["lr"]) for group in optimizer.param_groups]


def kind_of(optimizer: Any) -> str:
    """The class of torch.optim that it is, "" for one of the user's own."""
    kinds = [k for k in type(optimizer).__mro__ if k.__module__.startswith("torch.optim.")]
    return kinds[0].__name__ if kinds and kinds[0] is not torch.optim.Optimizer else ""


def stock_port(optimizer: Any) -> str:
    """The class of paddle.optimizer with the same rule, "" for one of the user's own."""
    kind = kind_of(optimizer)
    if kind == "SGD" and optimizer.param_groups[0]["momentum"]:
        return "Momentum"
    return "RMSProp" if kind == "RMSprop" else kind


def decays_of(optimizer: Any, model: torch.nn.Module) -> dict[str, tuple[float, float]]:
    """(straight from the weight, added to the gradient) of every parameter, as the options say."""
    decays = {}
    for group, members in zip(optimizer.param_groups, groups(optimizer, model), strict=True):
        rate = float(group.get("weight_decay", 0.0))
        straight = group.get("decoupled_weight_decay", kind_of(optimizer) == "AdamW")
        decays.update(dict.fromkeys(members, (rate, 0.0) if straight else (0.0, rate)))
    return decays


def give(parameter: torch.nn.Parameter, gradient: np.ndarray | None) -> None:
    """Set a gradient, or for None take it away, but for zeros that an optimizer left behind."""
    if gradient is not None:
        parameter.grad = torch.tensor(gradient, dtype=parameter.dtype)
    elif parameter.grad is not None and bool(parameter.grad.any()):
        parameter.grad = None


def gradient_norm(model: torch.nn.Module) -> float:
    """Global norm of the gradients as they are now: clipping in place shows here."""
    return _norm([p.grad for p in parameters(model).values() if p.grad is not None])


def _norm(gradients: Sequence[torch.Tensor]) -> float:
    norms = [gradient.norm() for gradient in gradients]
    return float(torch.stack(norms).double().norm()) if norms else 0.0


def round_settings(optimizer: Any, which: Sequence[str] | None) -> bool:
    """Round coefficients to float32, as Paddle's kernels hold them.

    Args:
        which: names of the settings to round; None rounds all of them.

    Returns:
        Whether any of them changed.
    """
    changed = False
    for group in optimizer.param_groups:
        for key in (*_FLOATS, "betas"):
            if key not in group or (which is not None and key not in which):
                continue
            value = group[key]
            if key == "betas":
                group[key] = tuple(float(np.float32(float(b))) for b in value)
            elif isinstance(value, float):
                group[key] = float(np.float32(value))
            changed |= group[key] != value
    return changed


def as_paddle(optimizer: Any, which: Sequence[str] | None, limit: float | None) -> None:
    """Let an optimizer compute with the numbers of Paddle's kernels from its next step on.

    PADDLE: coefficients are float32 numbers; gradients are clipped by their norm, not by norm +
    1e-6. So what hooks of the user leave just below the limit is enlarged to it; any other change
    of gradients (by value, by another formula) stays as it is.

    Args:
        limit: of the norm, by which a class of Paddle's clips on the other side; None without one.
    """
    round_settings(optimizer, which)
    if limit is None or not getattr(optimizer, "_optimizer_step_pre_hooks", None):
        return

    def enlarge(*_: Any) -> None:
        groups = [group["params"] for group in optimizer.param_groups]
        for members in (list(itertools.chain(*groups)), *groups):
            gradients = [p.grad for p in members if p.grad is not None]
            norm = _norm(gradients)
            if norm < limit <= norm + (1 + 1e-9) * CLIP_EPS:
                torch._foreach_mul_(gradients, limit / norm)

    optimizer.register_step_pre_hook(enlarge)


def as_stock_port(optimizer: Any, _: torch.nn.Module) -> None:
    """Let an optimizer compute as Paddle's class of its rule: see `as_paddle`.

    The limit of a clipping is not known: gradients that hooks make smaller are enlarged by 1e-6 /
    norm.
    """
    round_settings(optimizer, HELD_IN_FLOAT32.get(stock_port(optimizer), ()))
    hooks = getattr(optimizer, "_optimizer_step_pre_hooks", None)
    if not hooks:
        return
    norms: list[float] = []

    def gradients() -> list[list[torch.Tensor]]:
        groups = [group["params"] for group in optimizer.param_groups]
        return [[p.grad for p in members if p.grad is not None] for members in groups]

    def measure(*_: Any) -> None:
        norms[:] = [_norm(group) for group in gradients()]

    def enlarge(*_: Any) -> None:
        for before, group in zip(norms, gradients(), strict=True):
            if 0 < _norm(group) < before:
                torch._foreach_mul_(group, 1 + CLIP_EPS / before)

    first = optimizer.register_step_pre_hook(measure)
    hooks.move_to_end(first.id, last=False)
    optimizer.register_step_pre_hook(enlarge)
