"""Learning rates of the vision recipe, by timm's own scheduler, and of BERT's TensorFlow code."""

import torch


def vision_learning_rates(
    lr: float,
    *,
    epochs: int = 300,
    cooldown_epochs: int = 10,
    min_lr: float = 1e-5,
    warmup_epochs: int = 5,
    warmup_lr: float = 1e-6,
) -> list[float]:
    """Learning rate of every epoch: linear warm-up, cosine, cool-down at the minimum.

    Epoch e has warmup_lr + e (lr - warmup_lr) / warmup_epochs before the end of the warm-up, then
    min_lr + (lr - min_lr) (1 + cos(pi e / epochs)) / 2 at the absolute epoch (the warm-up is not
    a prefix), and min_lr from ``epochs`` on.

    Args:
        lr: Peak that the cosine starts from at epoch 0.
        epochs: Length of the cosine, warm-up included.
        cooldown_epochs: Epochs at ``min_lr`` after it.
        min_lr: End of the cosine.
        warmup_epochs: Epochs of the warm-up; 0 = none.
        warmup_lr: Learning rate of epoch 0 with a warm-up.

    Returns:
        epochs + cooldown_epochs values (published: 310).

    Source: specs A.9; timm CosineLRScheduler.
    """
    from timm.scheduler import CosineLRScheduler  # here: it takes seconds to import

    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=lr)
    scheduler = CosineLRScheduler(
        optimizer,
        t_initial=epochs,
        lr_min=min_lr,
        cycle_limit=1,
        warmup_t=warmup_epochs,
        warmup_lr_init=warmup_lr,
        warmup_prefix=False,
        t_in_epochs=True,
    )
    rates = []
    for epoch in range(epochs + cooldown_epochs):
        scheduler.step(epoch)
        rates.append(optimizer.param_groups[0]["lr"])
    return rates


def warmup_linear(
    optimizer: torch.optim.Optimizer, warmup_steps: float, total_steps: int
) -> torch.optim.lr_scheduler.LambdaLR:
    """Schedule of BERTAdam, by the share x of the run: x / w below w, then 1 - x.

    Args:
        optimizer: Its rates are those of x = w, if the line began there.
        warmup_steps: The share w of the run, in steps.
        total_steps: Length of the run.

    Source: specs D.4.
    """
    warmup = warmup_steps / total_steps

    def factor(step: int) -> float:
        x = step / total_steps
        return x / warmup if x < warmup else max(0.0, 1.0 - x)

    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
