"""Step ``learning_rate`` of rates by layer: the rate and the decay of every parameter, by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from unittest import mock

import numpy as np
import paddle
import torch

from align.cases.both_sides import BothSides, Setting, stamps
from align.frameworks import on_paddle, on_torch
from align.judge.bounds import TOLERANCES
from align.record.arrays import Arrays
from sot_paddle import distributed
from sot_paddle.tasks.document_options import DocumentTrainConfig
from sot_paddle.train import document_command
from sot_paddle.train.feeding import Pace
from sot_torch_ref.train import documents
from sot_torch_ref.train.schedule import warmup_linear

_GIVEN = {"task_name": "IMDB", "data_dir": "d", "model_name_or_path": "m", "output_dir": "o"}
_ROWS, _BATCH, _EPOCHS = 83, 8, 2.0
_STEPS = int(_ROWS / _BATCH * _EPOCHS)  # of the schedule; the run has two more


def groups(setting: Setting, *, options: Mapping[str, Any]) -> BothSides:
    """The rate of every parameter at every step of a run, and its weight decay.

    Args:
        setting: the pair of models.
        options: of ``tools/train_text.py``.
    """
    model, reference = setting.pair.model, setting.pair.fresh_reference()
    ours, stamp = _ours(model, options)
    count = model.encoder_config.num_hidden_layers
    first, last = (f"rate/bert.encoder.layers.{n}.norm1.weight" for n in (0, count - 1))
    embedded = "rate/bert.embeddings.layer_norm.weight"
    ours["schedule steps"], wanted = _schedule_steps(options)
    theirs = _reference(setting, reference, options) | {"schedule steps": wanted}
    faults = {
        "shifted by one step": {
            n: np.roll(v, 1) if n.startswith("rate/") else v for n, v in ours.items()
        },
        "one layer off": ours | {first: ours[first] * 0.95, last: ours[last] * 0.95},
        "the embeddings go with another rate": ours | {embedded: 1.1 * ours[embedded]},
        "the exclusions of weight decay lost": {
            n: np.full_like(v, v.max() or 0.01) if n.startswith("decay/") else v
            for n, v in ours.items()
        },
    }
    return BothSides(
        ours,
        theirs,
        faults,
        "the rates",
        rule=TOLERANCES["learning_rate", None],
        stamps=stamps(stamp, on_torch.stamp(next(reference.parameters()).detach())),
        note=f"{len(model.parameters())} parameters, {_STEPS} steps",
    )


def _schedule_steps(options: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """When the rate is zero, for runs of several lengths: ours, and D.4's formula."""
    found, wanted = [], []
    runs = ((3, 1, -1, 1), (83, 1, -1, 1), (83, 2, -1, 1), (83, 1, 1, 1), (83, 1, -1, 3))
    for rows, parts, limit, processes in runs:
        config = DocumentTrainConfig(
            **_GIVEN,
            per_gpu_train_batch_size=_BATCH,
            num_train_epochs=_EPOCHS,
            gradient_accumulation_steps=parts,
            max_steps=limit,
            **options,
        )
        with mock.patch.object(distributed, "world_size", return_value=processes):
            pace = Pace(-(-rows // (_BATCH * processes)), parts, rows)
            found.append(document_command.schedule_steps(config, pace, 99))
        by_step, batch = limit > 0 or options.get("paddle_compat"), _BATCH * parts * processes
        wanted.append(99 if by_step else max(1, int(rows / batch * _EPOCHS)))
    return np.array(found, dtype="float64"), np.array(wanted, dtype="float64")


def _ours(model: Any, options: Mapping[str, Any]) -> tuple[Arrays, Mapping[str, Any]]:
    config = DocumentTrainConfig(
        **_GIVEN, per_gpu_train_batch_size=_BATCH, num_train_epochs=_EPOCHS, **options
    )
    pace = Pace(-(-_ROWS // _BATCH), 1, _ROWS)
    steps = int(pace.steps * _EPOCHS)
    with on_paddle.default_dtype("float64"):
        optimizer, schedule = document_command.optimizer(config, model, pace, steps)
    rates: dict[str, list[float]] = {name: [] for name, _ in model.named_parameters()}
    names = {parameter.name: name for name, parameter in model.named_parameters()}
    made = optimizer._create_param_lr

    def noted(given: Any) -> paddle.Tensor:
        rate = made(given)
        rates[names[given[0].name]].append(rate.item())
        return rate

    optimizer._create_param_lr = noted
    with on_paddle.default_dtype("float64"):
        for _ in range(_STEPS):
            for parameter in model.parameters():
                parameter.grad = paddle.zeros_like(parameter)
            optimizer.step()
            schedule.step()
    decays = optimizer._apply_decay_param_fun
    found: Arrays = {f"rate/{name}": np.asarray(values) for name, values in rates.items()}
    for name, parameter in model.named_parameters():
        found[f"decay/{name}"] = np.asarray(config.weight_decay if decays(parameter.name) else 0.0)
    return found, on_paddle.stamp(next(iter(model.parameters())))


def _reference(setting: Setting, model: torch.nn.Module, options: Mapping[str, Any]) -> Arrays:
    rate, decay = options["learning_rate"], options.get("layer_learning_rate_decay", 0.95)
    count = model.encoder_config.num_hidden_layers
    if options.get("paddle_compat"):
        hooked = documents.hooked_rates(model, rate, decay)
        shaped = {name: hooked[name] / rate for name in hooked}
        steps = -(-_ROWS // _BATCH) * int(_EPOCHS)
        factors = [_linear(step, steps) for step in range(_STEPS)]
        curves = {n: [rate * r * f for f in factors] for n, r in shaped.items()}
        decayed = {
            group["names"][index]: group["weight_decay"]
            for group in documents.discriminative_groups(model, [rate] * count, rate, 0.01)
            for index in range(len(group["names"]))
        }
    else:
        given = list(options.get("layer_learning_rate", (rate,)))
        rates = documents.layer_rates(count, given, decay)
        if options.get("discr_blocks"):
            rates = documents.three_blocks(count, rate)
        elif not options.get("discr"):
            rates = [rate] * count
        curves, decayed = _grouped(model, rates, rate)
    names = _our_names(setting, model)
    found: Arrays = {f"rate/{names[name]}": np.asarray(curve) for name, curve in curves.items()}
    return found | {f"decay/{names[n]}": np.asarray(value) for n, value in decayed.items()}


def _grouped(
    model: torch.nn.Module, rates: Sequence[float], rate: float
) -> tuple[dict[str, list[float]], dict[str, float]]:
    made = documents.discriminative_groups(model, list(rates), rate, 0.01)
    optimizer = torch.optim.SGD(
        [{name: value for name, value in group.items() if name != "names"} for group in made]
    )
    schedule = warmup_linear(optimizer, 0.1 * _STEPS, _STEPS)
    curves: dict[str, list[float]] = {name: [] for group in made for name in group["names"]}
    for _ in range(_STEPS):
        for group, at_work in zip(made, optimizer.param_groups, strict=True):
            for name in group["names"]:
                curves[name].append(at_work["lr"])
        optimizer.step()
        schedule.step()
    return curves, {name: group["weight_decay"] for group in made for name in group["names"]}


def _linear(step: int, total: int) -> float:
    """The Paddle port's schedule: specs.md D.4."""
    warmup = int(0.1 * total)
    return step / warmup if step < warmup else (total - step) / (total - warmup)


def _our_names(setting: Setting, model: torch.nn.Module) -> dict[str, str]:
    partners = setting.pair.setup.weights.partners()
    found = {}
    for name, _ in model.named_parameters():
        (found[name],) = partners[name]
    return found
