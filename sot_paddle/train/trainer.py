"""paddlenlp's Trainer, corrected where it loses something: data order, state, checkpoints.

What stays the Trainer's: the loop, accumulation, mixed precision, data parallelism, VisualDL.
What is replaced: the sample order (explicit), the optimizer and its schedule (as published),
saving and loading (whole or absent, by structured names, random states and position included),
evaluation (in data set order). feeding.py and exact_state.py say why.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import paddle
from paddle import nn
from paddle.io import DataLoader
from paddlenlp.trainer import Trainer, TrainerCallback, TrainingArguments

from sot_paddle import distributed
from sot_paddle.checkpoint import read_tensors
from sot_paddle.cli import NonFinite
from sot_paddle.distributed import say
from sot_paddle.reading import read_json
from sot_paddle.train import checkpointing, exact_state, outcome
from sot_paddle.train.callbacks import WATCHES, StopRequest
from sot_paddle.train.checkpointing import TensorFile
from sot_paddle.train.exact_state import Progress, check_identity
from sot_paddle.train.feeding import MicroBatches, Pace
from sot_paddle.train.setup import Run
from sot_paddle.versions import require


class ExactTrainer(Trainer, TrainerCallback):
    """Trainer whose resumed run ends bit-identical to the uninterrupted one; its own callback, too.

    Args:
        callbacks: further ones.
    """

    def __init__(
        self,
        run: Run,
        arguments: TrainingArguments,
        *,
        batches: MicroBatches,
        pace: Pace,
        callbacks: Sequence[TrainerCallback] = (),
    ) -> None:
        self.run, self.batches, self.pace = run, batches, pace
        self.progress = Progress(evaluation_data=self.run.evaluation_data)
        self.stop = StopRequest()
        self._losses: list[paddle.Tensor] = []
        self._saved: dict[str, Any] | None = None
        self._random_due: Mapping[str, Any] | None = None
        self._consumed = (0, 0)  # epoch and index of the micro-batch in work
        super().__init__(
            model=run.model,
            args=arguments,
            train_dataset=run.task.train,
            callbacks=[self, *callbacks],
        )
        self.run = dataclasses.replace(run, autocast=self.autocast_smart_context_manager)

    @property
    def total_steps(self) -> int:
        """Optimizer steps of the whole run."""
        if self.args.max_steps > 0:
            return self.args.max_steps
        return int(self.pace.steps * self.args.num_train_epochs)

    def train(self, *arguments: Any, **options: Any) -> Any:
        """Train; the logs are closed also where it ends early: each has a thread."""
        try:
            return super().train(*arguments, **options)
        finally:
            for callback in self.callback_handler.callbacks:
                if writer := getattr(callback, "vdl_writer", None):
                    with contextlib.suppress(OSError):  # a full disk: why it ends is said
                        writer.close()

    # data

    def get_train_dataloader(self) -> DataLoader:
        """Loader over this process's micro-batches, from the position to continue at."""
        return self.run.task.train.load(self.batches)

    def on_epoch_begin(self, args, state, control, **kwargs) -> None:
        """Finish what the previous epoch left over, when a resumed run begins between epochs."""
        if self._saved is None:
            return
        step, self._saved = self._saved["step"], None
        epoch, _ = self.pace.position_after(step)
        left = self.pace.carried_over(step)
        rest = [self.batches.at(epoch, index) for index in left]
        for index, inputs in zip(left, self.run.task.train.load(rest) if rest else (), strict=True):
            self._consumed = (epoch, index)
            no_sync = getattr(self.model_wrapped, "no_sync", contextlib.nullcontext)
            with no_sync():
                self.training_step(self.model_wrapped, inputs)

    # one step

    def training_step(self, model: nn.Layer, inputs: dict[str, Any]):
        """Forward and backward of one micro-batch."""
        if self._random_due is not None:  # as late as possible: nothing may draw in between
            exact_state.restore_random_states(self._random_due)
            self._random_due = None
        loss = super().training_step(model, inputs)
        self._losses.append(loss)
        epoch, index = self._consumed
        self._consumed = (epoch, index + 1) if index + 1 < len(self.batches) else (epoch + 1, 0)
        return loss

    def compute_loss(self, model: nn.Layer, inputs: dict[str, Any], return_outputs: bool = False):
        """Mean loss of the micro-batch, weighted so that processes average to the batch's mean."""
        inputs = dict(inputs)
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        loss = self.run.task.loss(outputs, labels)
        weight = self.batches.weight(*self._consumed)
        if weight != 1.0:
            loss = loss * weight
        return (loss, outputs) if return_outputs else loss

    def _check_loss_valid(self, loss: paddle.Tensor) -> None:
        """Called before each optimizer step: stop before a NaN can reach the weights."""
        value = sum(float(part) for part in self._losses) * self.pace.accumulation
        value /= len(self._losses)  # more than the accumulation where some were carried over
        self._losses.clear()
        step = self.state.global_step + 1
        if not math.isfinite(value) and not self.do_grad_scaling:
            raise NonFinite(
                f"the loss is {value} at step {step} (learning rate "
                f"{self.optimizer.get_lr():.3g}); the weights before it are intact, "
                f"{checkpointing.way_back(self.run.root)}"
            )
        self.progress.window.append(value)
        self.progress.loss_sum += value

    # optimizer

    def create_optimizer_and_scheduler(self, num_training_steps: int) -> None:
        """Build the run's optimizer and schedule, once."""
        if self.optimizer is None:
            setup, model = self.run.setup, self.run.model
            self.optimizer, self.lr_scheduler = setup.optimizer(
                setup.options, model, self.pace, num_training_steps
            )

    def on_optimizer_end(self, args, state, control, **kwargs) -> None:
        """Let the moving average follow."""
        if self.run.ema is not None:
            self.run.ema.update(state.global_step)

    def on_step_end(self, args, state, control, lr_scheduler=None, **kwargs):
        """Choose the rate of the next step; evaluate, save and stop as due.

        PADDLE: the Trainer advances the schedule only where the optimizer ran; each step that a
        loss scaler skips (float16) would delay every later change of the rate by one step.
        """
        step, setup = state.global_step, self.run.setup
        lr_scheduler.step(epoch=step)  # Paddle's "epoch" is the schedule's position
        state.epoch = self.pace.epochs_done(step)
        final = step >= state.max_steps
        every = self.pace.steps if setup.eval_steps is None else setup.eval_steps
        if every and (final or step % every == 0):
            control.should_evaluate = True
        save_steps = self.pace.steps * setup.save_epochs
        if final or (save_steps and step % save_steps == 0):
            control.should_save = True
        if final:
            control.should_log = True
        if self.stop.requested:
            control.should_save = control.should_training_stop = True
        return control

    def on_evaluate(self, args, state, control, **kwargs):
        """End the run after too many evaluations without progress."""
        if self.out_of_patience:
            control.should_training_stop = control.should_save = True
        return control

    # state

    def accept(self, checkpoint: Path | None) -> None:
        """Read the state of the checkpoint to resume from, if there is one."""
        step = 0
        if checkpoint is not None:
            saved = self._saved = read_json(checkpoint / checkpointing.STATE)
            check_identity(saved["identity"], self.run.identity, checkpoint)
            step, self.progress = saved["step"], Progress(**saved["progress"])
            losses = saved["losses"][distributed.rank()]
            self.progress.window, self.progress.loss_sum = losses
            data = self.run.evaluation_data
            if self.progress.evaluation_data != data:  # old scores tell nothing of other examples
                self.progress.evaluations, self.progress.evaluation_data = {}, data
                self.progress.best_step = self.progress.since_best = 0
        if self._is_over(step):
            return
        operators, now = self.progress.operators, exact_state.operators_in_use()
        before = next(reversed(operators.values()), now)
        if before != now:
            say(
                f"{checkpoint} was trained with {before} operators, this run goes on with {now} "
                "ones: its last digits differ from those of one with the same throughout"
            )
        if before != now or not operators:
            operators[str(step)] = now

    def resume(self, checkpoint: Path | None) -> None:
        """Train from the start, or from an accepted checkpoint; a run that had ended is only
        loaded."""
        if checkpoint is None:
            self.train()
            return
        step = self._saved["step"]
        if self._is_over(step):
            self.state.global_step = step
            self.run.restore(checkpoint)
            distributed.on_first_process(self._prune)
            return
        epoch, batch = self.pace.position_after(step)
        between = step % self.pace.steps == 0
        self._consumed = (epoch + 1, 0) if between else (epoch, batch)
        self.batches.seek(*self._consumed)
        require("3.0", "a run that continues bit for bit")
        self.train(resume_from_checkpoint=str(checkpoint))

    def _is_over(self, step: int) -> bool:
        """Whether nothing is left to train after a step."""
        return step >= self.total_steps or self.out_of_patience

    @property
    def out_of_patience(self) -> bool:
        """Whether early stopping is due."""
        patience = self.run.setup.options.early_stopping_patience
        return patience is not None and self.progress.since_best >= patience

    def _load_from_checkpoint(self, resume_from_checkpoint: str | None = None) -> None:
        if resume_from_checkpoint is not None:
            self.run.restore(Path(resume_from_checkpoint))

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is None:
            return
        self.state.global_step = self._saved["step"]
        arrays, _ = read_tensors(Path(checkpoint) / checkpointing.OPTIMIZER)
        counters = self._saved["counters"]
        exact_state.restore_optimizer(self.optimizer, self.model, arrays, counters)
        self.lr_scheduler.set_state_dict(self._saved["schedule"])
        if self.do_grad_scaling:
            self.scaler.load_state_dict(self._saved["scaler"])
        self._random_due = self._saved["random"][distributed.rank()]

    def _save_checkpoint(self, model: nn.Layer, metrics: dict[str, float] | None = None) -> None:
        step = self.state.global_step
        scaler = self.scaler.state_dict().items() if self.do_grad_scaling else ()
        state = {
            "step": step,
            "scaler": {k: v.tolist() if hasattr(v, "tolist") else v for k, v in scaler},
            "identity": self.run.identity,
            "schedule": self.lr_scheduler.state_dict(),
            "counters": exact_state.optimizer_counters(self.optimizer, self.model),
            "progress": vars(self.progress),
            "losses": distributed.gather([self.progress.window, self.progress.loss_sum]),
            "random": distributed.gather(exact_state.random_states()),
        }

        def files() -> Iterator[tuple[str, bytes | TensorFile]]:
            yield from self.run.files()
            moments = exact_state.optimizer_arrays(self.optimizer, self.model)
            yield checkpointing.OPTIMIZER, TensorFile(moments)
            yield checkpointing.STATE, json.dumps(state).encode()

        def write() -> None:
            checkpointing.write_checkpoint(self.run.root, step, files())
            self._prune()

        distributed.on_first_process(write)

    def _prune(self) -> None:
        checkpointing.prune(self.run.root, keep=self.run.setup.options.save_total_limit)

    # evaluation and logs

    def evaluate(self, eval_dataset=None, ignore_keys=None, metric_key_prefix="eval"):
        """Evaluate, keep the best model, log; returns the metrics with the prefix."""
        step = self.state.global_step
        metrics = outcome.score(self.run)
        best = self.progress.evaluations.get(str(self.progress.best_step))
        self.progress.evaluations[str(step)] = metrics
        value = metrics[self.run.metric]
        if outcome.is_better(metrics, best, self.run):
            self.progress.best_step, self.progress.since_best = step, 0
            outcome.write_best(self.run, step, value)
        else:
            self.progress.since_best += 1
        logged = {f"{metric_key_prefix}_{name}": number for name, number in metrics.items()}
        self.log(dict(logged))
        self.control = self.callback_handler.on_evaluate(
            self.args, self.state, self.control, logged
        )
        for watch in WATCHES:
            watch(step, self.total_steps, {**metrics, "main": value})
        return logged

    def mean_loss(self) -> float:
        """Mean loss of all steps, the same on every process."""
        mean = self.progress.loss_sum / max(1, self.state.global_step)
        return distributed.mean_across_processes(mean)

    def log(self, logs: dict[str, float], **kwargs: Any) -> None:
        """Log; the training loss is the mean over the steps since the last line."""
        if "loss" in logs and self.progress.window:
            window, self.progress.window = self.progress.window, []
            logs["loss"] = distributed.mean_across_processes(sum(window) / len(window))
        if "train_loss" in logs:
            logs["train_loss"] = self.mean_loss()
        super().log(logs, **kwargs)
