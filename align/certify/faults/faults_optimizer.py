"""Faults of optimizers: decay, moments, epsilon, clipping, accumulation, groups."""

from __future__ import annotations

from align.certify.planting import edited, given, together
from align.certify.scene import Fault

_PORT = "align.certify.ports.port_finetuning"
_ADAMW, _ADAM, _SGD, _VISION = (
    f"{_PORT}:{name}" for name in ("optimizer", "accumulating", "momentum", "vision")
)

FAULTS = (
    Fault(
        "decay_on_biases",
        "optimizer",
        "finetune",
        "optimizer",
        "*.bias",
        r"decays in Paddle only: [\w.]+\.bias",
        edited(_ADAMW, '"bias" not in n and', ""),
    ),
    Fault(
        "decay_by_structured_names",
        "optimizer",
        "finetune",
        "optimizer",
        "*",
        r"decays in PyTorch only",
        edited(_ADAMW, "p.name for n, p in model", "n for n, p in model"),
    ),
    Fault(
        "decay_on_vectors",
        "optimizer",
        "vision_adamw",
        "optimizer",
        "*",
        r"decays in Paddle only",
        edited(_VISION, "apply_decay_param_fun=lambda name: name in decayed,", ""),
    ),
    Fault(
        "decay_coefficient",
        "optimizer",
        "vision_adamw",
        "optimizer",
        "*",
        r"coefficient.*0\.01.*0\.03125",
        edited(_VISION, "weight_decay=2.0**-5", "weight_decay=0.01"),
    ),
    Fault(
        "decay_decoupled_for_l2",
        "optimizer",
        "accumulated",
        "optimizer",
        "*",
        r"decoupled instead of L2",
        edited(_ADAM, "paddle.optimizer.Adam(", "paddle.optimizer.AdamW("),
    ),
    Fault(
        "decay_l2_for_decoupled",
        "optimizer",
        "vision_adamw",
        "optimizer",
        "*",
        r"L2 instead of decoupled",
        edited(
            _VISION,
            "paddle.optimizer.AdamW(\n        learning_rate=schedule,\n"
            "        parameters=model.parameters(),\n        weight_decay=2.0**-5,\n"
            "        apply_decay_param_fun=lambda name: name in decayed,\n    )",
            "paddle.optimizer.Adam(\n        learning_rate=schedule,\n        parameters=[\n"
            "            {'params': [p for p in model.parameters() if p.name in decayed],\n"
            "             'weight_decay': 2.0**-5},\n"
            "            {'params': [p for p in model.parameters() if p.name not in decayed],\n"
            "             'weight_decay': 0.0},\n        ],\n    )",
        ),
    ),
    Fault(
        "decay_twice",
        "optimizer",
        "accumulated",
        "optimizer",
        "*",
        r"double decay",
        edited(
            _ADAM,
            "return made, None, divide",
            "def twice(m):\n        divide(m)\n        for p in m.parameters():\n"
            "            if p.grad is not None:\n"
            "                p.grad = p.grad + DECAY * p.detach()\n\n"
            "    return made, None, twice",
        ),
    ),
    Fault(
        "decay_missing",
        "optimizer",
        "momentum",
        "optimizer",
        "*",
        r"decays in PyTorch only",
        edited(_SGD, "weight_decay=DECAY,\n", ""),
    ),
    Fault(
        "adam_epsilon",
        "optimizer",
        "finetune",
        "optimizer",
        "optimizer",
        r"epsilon.*1e-08.*1e-06",
        edited(_ADAMW, "epsilon=1e-6", "epsilon=1e-8"),
    ),
    Fault(
        "adam_beta2",
        "optimizer",
        "finetune",
        "optimizer",
        "optimizer",
        r"beta2.*0\.999.*0\.98",
        edited(_ADAMW, "beta2=0.98", "beta2=0.999"),
    ),
    Fault(
        "adam_beta1",
        "optimizer",
        "vision_adamw",
        "optimizer",
        "optimizer",
        r"beta1.*0\.8.*0\.9",
        edited(
            _VISION, "learning_rate=schedule,\n", "learning_rate=schedule,\n        beta1=0.8,\n"
        ),
    ),
    Fault(
        "adam_betas_exchanged",
        "optimizer",
        "finetune",
        "optimizer",
        "optimizer",
        r"betas exchanged",
        edited(_ADAMW, "beta1=0.9,\n        beta2=0.98", "beta1=0.98,\n        beta2=0.9"),
    ),
    Fault(
        "nesterov_missing",
        "optimizer",
        "momentum",
        "optimizer",
        "optimizer",
        r"nesterov: only PyTorch",
        edited(_SGD, "use_nesterov=True", "use_nesterov=False"),
    ),
    Fault(
        "momentum_value",
        "optimizer",
        "momentum",
        "optimizer",
        "optimizer",
        r"momentum.*0\.9.*0\.875",
        edited(_SGD, "momentum=0.875", "momentum=0.9"),
    ),
    Fault(
        "clipping_missing",
        "optimizer",
        "finetune",
        "optimizer",
        "optimizer",
        r"clipping missing",
        edited(_ADAMW, "grad_clip=paddle.nn.ClipGradByGlobalNorm(CLIP),", ""),
    ),
    Fault(
        "clipping_limit",
        "optimizer",
        "finetune",
        "optimizer",
        "optimizer",
        r"clipping limit.*Paddle 0\.1, PyTorch 0\.05",
        edited(_ADAMW, "ClipGradByGlobalNorm(CLIP)", "ClipGradByGlobalNorm(2 * CLIP)"),
    ),
    Fault(
        "clipping_each_tensor",
        "optimizer",
        "finetune",
        "optimizer",
        "optimizer",
        r"norm of each tensor",
        together(
            edited(_ADAMW, "ClipGradByGlobalNorm(CLIP)", "ClipGradByNorm(CLIP)"),
            given(dtype=("float32",)),  # Paddle has no such kernel in float64
        ),
    ),
    Fault(
        "clipping_by_value",
        "optimizer",
        "finetune",
        "optimizer",
        "optimizer",
        r"clips the value",
        edited(_ADAMW, "ClipGradByGlobalNorm(CLIP)", "ClipGradByValue(CLIP)"),
    ),
    Fault(
        "accumulation_not_divided",
        "optimizer",
        "accumulated",
        "optimizer",
        "optimizer",
        r"scaled by (0\.25 in PyTorch only|4 in Paddle)",
        edited(f"{_PORT}:divide", "parameter.grad / MICRO", "parameter.grad"),
    ),
    Fault(
        "gradients_zero_instead_of_none",
        "optimizer",
        "accumulated",
        "optimizer",
        "*",
        r"clear_grad\(\) leaves zeros",
        edited(
            f"{_PORT}:divide",
            "        if parameter.grad is not None:\n"
            "            parameter.grad = parameter.grad / MICRO",
            "        held = parameter.grad\n        zeros = paddle.zeros_like(parameter)\n"
            "        parameter.grad = zeros if held is None else held / MICRO",
        ),
    ),
    Fault(
        "optimizer_without_the_head",
        "optimizer",
        "momentum",
        "optimizer",
        "fc.*",
        r"not in Paddle's optimizer: fc\.weight",
        edited(_SGD, ', {"params": head}]', "]"),
    ),
    Fault(
        "optimizer_of_another_kind",
        "optimizer",
        "accumulated",
        "optimizer",
        "optimizer",
        r"another optimizer",
        edited(_ADAM, "paddle.optimizer.Adam(", "paddle.optimizer.Momentum("),
    ),
    Fault(
        "adam_amsgrad",
        "optimizer",
        "vision_adamw",
        "optimizer",
        "optimizer",
        r"amsgrad: only Paddle",
        edited(
            _VISION, "learning_rate=schedule,\n", "learning_rate=schedule,\n        amsgrad=True,\n"
        ),
    ),
)
