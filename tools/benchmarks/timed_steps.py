"""One step of a workload on one side, and the matrix products that it consists of."""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections import Counter
from collections.abc import Callable
from typing import Any

from tools.benchmarks.workloads import CLASSES, Workload

Steps = dict[str, Callable[[], None]]
"""Mode to one step of it."""
Product = tuple[int, int, int, int]
"""(count, m, k, n): so many products (m, k) @ (k, n) in one call, m at least n: the product of the
transposed matrices is the same work."""

MODES = ("train", "inference")


def steps_of(workload: Workload, framework: str, form: str = "") -> Steps:
    """A training step and a forward pass of a workload.

    Args:
        workload: model and batch.
        framework: ``"paddle"`` or ``"torch"``; the other one is not imported.
        form: of torch: ``"compiled"``, ``"bfloat16"`` (autocast) or ``""`` (eager); of Paddle:
            ``"bf16"`` (products in bfloat16) or ``""``.
    """
    build = _torch_parts if framework == "torch" else _paddle_parts
    model, batch, labels, loss, optimizer, no_grad, clear = build(workload)
    leaves = [*model.parameters(), *batch.values()]
    called, within = model, contextlib.nullcontext
    if form == "compiled":
        called = importlib.import_module("torch").compile(model)
    elif form == "bf16":
        importlib.import_module("sot_paddle.ops.bfloat16").choose_products(form)
    elif form == "bfloat16":
        torch = importlib.import_module("torch")
        within = functools.partial(torch.autocast, "cpu", torch.bfloat16)

    def forward() -> Any:
        return called(**batch)[0] if labels is None else called(**batch)

    def train() -> None:
        model.train()
        with within():
            value = forward().sum() if labels is None else loss(forward(), labels)
        value.backward()
        if optimizer is not None:
            optimizer.step()
        for leaf in leaves:
            clear(leaf)

    def inference() -> None:
        model.eval()
        with no_grad(), within():
            forward()

    return {"train": train, "inference": inference}


def _torch_parts(workload: Workload) -> tuple:
    import torch

    from align.port.port_pair import torch_words_only
    from sot_torch_ref import create_model
    from sot_torch_ref.train.losses import task_loss

    batch = {name: torch.from_numpy(value) for name, value in workload.inputs().items()}
    labels, optimizer = batch.pop("labels", None), None
    if labels is None:
        model: Any = torch_words_only(workload.options, workload.channels, CLASSES)
        batch["tokens"].requires_grad_(True)
    else:
        model = create_model(workload.model, CLASSES, **workload.options)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)

    def clear(leaf: Any) -> None:
        leaf.grad = None

    return model, batch, labels, task_loss, optimizer, torch.no_grad, clear


def _paddle_parts(workload: Workload) -> tuple:
    import paddle

    from align.port.port_pair import paddle_words_only
    from sot_paddle import create_model
    from sot_paddle.tasks.losses import classification_loss
    from sot_paddle.train.optimizer import AdamW

    batch = {name: paddle.to_tensor(value) for name, value in workload.inputs().items()}
    labels, optimizer = batch.pop("labels", None), None
    if labels is None:
        model: Any = paddle_words_only(workload.options, workload.channels, CLASSES)
        batch["tokens"].stop_gradient = False
    else:
        model = create_model(workload.model, CLASSES, **workload.options)
        optimizer = AdamW(1e-5, parameters=model.parameters())

    def clear(leaf: Any) -> None:
        leaf.clear_gradient(False)

    return model, batch, labels, classification_loss, optimizer, paddle.no_grad, clear


def products_of(workload: Workload, mode: str) -> list[tuple[Product, int]]:
    """The matrix products of a step, as the PyTorch reference issues them, each with its number.

    A convolution counts as the product that it is: output channels by the unrolled window by the
    places.

    Raises:
        ValueError: the step holds a product that is not known here.
    """
    from torch.utils._python_dispatch import TorchDispatchMode

    found: Counter[Product] = Counter()

    class Recorder(TorchDispatchMode):
        """Notes the shapes of products as they are called."""

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            made = func(*args, **(kwargs or {}))
            for count, m, k, n in _products(func.overloadpacket.__name__, args, made):
                found[count, max(m, n), k, min(m, n)] += 1
            return made

    step = steps_of(workload, "torch")[mode]
    step()
    with Recorder():
        step()
    return sorted(found.items())


def _products(name: str, args: tuple, made: Any) -> list[Product]:
    if name in ("mm", "bmm", "addmm", "baddbmm"):
        left, right = (args[-2], args[-1])
        return [(*(left.shape[:-2] or (1,)), *left.shape[-2:], right.shape[-1])]
    if name == "convolution":
        return [_convolution(args[1], made)]
    if name == "convolution_backward":
        count, outputs, window, places = _convolution(args[2], args[0])
        for_input, for_weight, _ = args[10]
        wanted = [(count, window, outputs, places)] if for_input else []
        return wanted + ([(count, outputs, places, window)] if for_weight else [])
    if "scaled_dot" in name or name in ("mv", "dot", "linear", "matmul"):
        raise ValueError(
            f"the floor cannot count {name}: add it to tools/benchmarks/timed_steps.py"
        )
    return []


def _convolution(weight: Any, made: Any) -> Product:
    """Weight (Cout, Cin / groups, *window) and output (B, Cout, *places) as a product."""
    outputs, window = weight.shape[0], weight[0].numel()
    return (1, outputs, window, made.numel() // outputs)


def product_call(product: Product, framework: str) -> Callable[[], None]:
    """A call of the framework's bare matrix product on random numbers."""
    count, m, k, n = product
    lead = () if count == 1 else (count,)
    if framework == "torch":
        import torch

        left, right = torch.rand(*lead, m, k), torch.rand(*lead, k, n)
        out = torch.empty(*lead, m, n)

        def call() -> None:
            torch.matmul(left, right, out=out)

        return call
    import paddle

    a, b = paddle.rand([*lead, m, k]), paddle.rand([*lead, k, n])

    def call_paddle() -> None:
        with paddle.no_grad():
            paddle.matmul(a, b)

    return call_paddle
