"""The image trainer and the evaluation that the tools call, against a plain PyTorch loop.

Both read the same folder of pictures. The reference makes its own order, batches, soft targets,
rates, moving average and scores. A second run of ours continues a checkpoint of the first.
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import paddle
import pytest
import torch

import sot_torch_ref  # noqa: F401  isort: skip (torchvision beside a CPU torch)
from torchvision.datasets import ImageFolder

import sot_paddle
from sot_paddle import distributed
from sot_paddle.data.image_dataset import ImageTrainSet
from sot_paddle.registry import create_model
from sot_paddle.tasks.image_options import ImageEvalConfig, ImageTrainConfig
from sot_paddle.tasks.images import ImageSplit
from sot_paddle.train import image_command, image_evaluation, model_folder
from sot_paddle.train.feeding import MicroBatches
from sot_paddle.train.trainer import ExactTrainer
from sot_torch_ref.train.ema import ModelEma
from sot_torch_ref.train.image_scores import best_evaluation, image_scores
from sot_torch_ref.train.image_transforms import eval_transform
from sot_torch_ref.train.losses import smooth_one_hot, soft_target_cross_entropy
from sot_torch_ref.train.optimizer import is_decayed_vision, vision_decay_groups
from sot_torch_ref.train.schedule import vision_learning_rates
from sot_torch_ref.train.training_batch import normalized
from sot_torch_ref.train.training_image import TrainingRecipe, transform_image
from sot_torch_ref.train.uniform_draws import UniformDraws
from tests.parity.models import load_converted, models_of_equal_weights, to_paddle_names
from tests.parity.pictures import write_pictures
from tests.parity.sides import assert_same, torch_precision
from tests.parity.trainer_program import settings_put_back

pytestmark = pytest.mark.slow

Arrays = dict[str, np.ndarray]
SEED, CLASSES, SIZE = 42, 7, 16  # more than five classes, so that top-5 says something
TRAIN, VAL, BATCH = 18, 10, 4  # both counts of pictures leave a remainder
STEPS, RESUME_AT = 4, 5  # of an epoch, of two; and from where the second run continues
SMOOTHING, DECAY = 0.1, 0.42  # the warm-up of the average ends after six of eight updates
CROP, MEAN, STD = 0.8, (0.4, 0.5, 0.6), (0.3, 0.2, 0.25)
MODEL = {
    "qkv_bias": True,  # of the encoder; the head has none
    "token_type": "resnet",  # with batch normalisation: evaluation in training mode would show
    "token_dim": 8,
    "embed_dim": 12,
    "depth": 1,
    "num_heads": 3,
    "mlp_ratio": 1.5,
    "head_num_heads": 2,
    "wr_dim": 4,
    "head_dropout": 0.0,
}
OPTIONS: dict[str, Any] = {
    "model": "sot_tiny",
    "model_options": MODEL,
    "img_size": SIZE,
    "dtype": "float64",
    "seed": SEED,
    "batch_size": BATCH,
    "workers": 0,
    "cpu": True,
    "no_aug": True,
    "crop_pct": CROP,
    "mean": MEAN,
    "std": STD,
    "mixup": 0.0,
    "cutmix": 0.0,
    "drop_path": 0.0,
    "smoothing": SMOOTHING,
    "eval_metric": "loss",  # smaller is better, and the average's falls from epoch to epoch
    "lr": 5e-3,
    "weight_decay": 0.25,
    "opt_eps": 1e-4,  # a bias before a batch norm has no gradient: Adam would magnify rounding
    "opt_betas": (0.8, 0.97),
    "clip_grad": 0.5,
    "model_ema_decay": DECAY,
    "model_ema_warmup": True,
    "epochs": 2,
    "warmup_epochs": 1,
    "cooldown_epochs": 0,
    "min_lr": 1e-3,
    "warmup_lr": 2e-3,
    "recovery_interval": RESUME_AT,
    "save_total_limit": None,
}


@dataclass
class PaddleRun:
    """What a run of the trainer was fed, lost and applied, and what it left in its folder."""

    keys: list[tuple[int, int]] = field(default_factory=list)
    batches: list[Arrays] = field(default_factory=list)
    paces: list[tuple[float, int]] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    decayed: set[str] = field(default_factory=set)
    state: Arrays = field(default_factory=dict)
    average: Arrays = field(default_factory=dict)
    content: dict[str, Any] = field(default_factory=dict)
    keeps_options: bool = False
    in_training_mode: bool = True


@dataclass
class TorchRun:
    """The reference's run: of every epoch a model and one with the moving average."""

    keys: np.ndarray
    batches: list[Arrays]
    losses: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    decayed: set[str] = field(default_factory=set)
    models: list[torch.nn.Module] = field(default_factory=list)
    averages: list[torch.nn.Module] = field(default_factory=list)


@dataclass
class Runs:
    """Both sides' runs, ours continued, and what the tool says of the best checkpoint."""

    folder: Path
    paddle: PaddleRun
    resumed: PaddleRun
    torch: TorchRun
    tool: dict[str, Any]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    folder = tmp_path_factory.mktemp("images")
    sizes = [(16 + number % 3, 17) for number in range(TRAIN)]
    val = [(18, 16 + number % 4) for number in range(VAL)]
    write_pictures(folder, train=sizes, val=val, classes=CLASSES)
    options = {**MODEL, "img_size": SIZE}
    model, torch_model = models_of_equal_weights("sot_tiny", options, "float64", classes=CLASSES)
    with torch.no_grad():
        for name, parameter in torch_model.named_parameters():
            if name.endswith(("cls_fc.weight", "word_fc.weight")):
                parameter.mul_(30.0)  # so that predictions differ
    load_converted(model, "sot_tiny", torch_model)
    sot_paddle.save_weights(model, folder / "start.safetensors")
    out = folder / "out"
    with (
        settings_put_back(),
        contextlib.redirect_stderr(io.StringIO()),
        contextlib.redirect_stdout(io.StringIO()),
    ):
        first = paddle_run(folder, output_dir=str(out))
        tool = evaluated_by_the_tool(folder)
        checkpoint = f"{out}/checkpoint-{RESUME_AT}"
        resumed = paddle_run(folder, output_dir=str(folder / "resumed"), resume=checkpoint)
    with torch_precision("float64"):
        reference = torch_run(torch_model, folder)
    return Runs(folder, first, resumed, reference, tool)


def paddle_run(folder: Path, **options: Any) -> PaddleRun:
    """Run the command's function and note what each step gets and applies."""
    run, step, getitem = PaddleRun(), ExactTrainer.training_step, ImageTrainSet.__getitem__
    config = ImageTrainConfig(
        data_dir=str(folder),
        **OPTIONS,
        **options,
        initial_checkpoint=str(folder / "start.safetensors"),
    )

    def training_step(trainer, model, inputs, *more):
        run.batches.append({name: value.numpy().copy() for name, value in inputs.items()})
        done = trainer.pace.epochs_done(trainer.state.global_step)
        run.paces.append((done, trainer.pace.rows))
        run.rates.append(float(trainer.optimizer.get_lr()))
        applies = trainer.optimizer._apply_decay_param_fun
        for name, parameter in trainer.model.named_parameters():
            if applies is None or applies(parameter.name):
                run.decayed.add(name)
        loss = step(trainer, model, inputs, *more)
        run.losses.append(float(loss))
        return loss

    def noted_getitem(images, key):
        run.keys.append(key)
        return getitem(images, key)

    with (
        mock.patch.object(ExactTrainer, "training_step", training_step),
        mock.patch.object(ImageTrainSet, "__getitem__", noted_getitem),
    ):
        run.content = image_command.run_config(config)
    last = Path(config.output_dir) / "last"
    model, kept = model_folder.load_trained(last, ema=False)
    run.state, run.average = arrays_of(model), arrays_of(model_folder.load_trained(last)[0])
    asked = create_model(config.model, kept.num_classes, **config.overrides)
    again = create_model(config.model, kept.num_classes, **kept.options)
    run.keeps_options = (asked.backbone_config, asked.head_config) == (
        again.backbone_config,
        again.head_config,
    )
    run.in_training_mode = model.training
    return run


def arrays_of(model: paddle.nn.Layer) -> Arrays:
    return {name: tensor.numpy() for name, tensor in model.state_dict().items()}


def evaluated_by_the_tool(folder: Path) -> dict[str, Any]:
    """Evaluate the best checkpoint: what the tool writes."""
    config = ImageEvalConfig(
        data_dir=str(folder),
        weights=str(folder / "out" / "best"),
        dtype="float64",
        cpu=True,
        workers=0,
        batch_size=BATCH,
    )
    return image_evaluation.evaluate(config)


def epoch_batches(epoch: int, processes: int = 1) -> np.ndarray:
    """Images of an epoch, (steps, processes, B): NumPy's PCG64 seeded with (seed, epoch, 0)."""
    order = np.random.Generator(np.random.PCG64([SEED, epoch, 0])).permutation(TRAIN)
    whole = BATCH * processes
    return order[: TRAIN // whole * whole].reshape(-1, processes, BATCH)


def torch_run(model: torch.nn.Module, folder: Path) -> TorchRun:
    """Train the reference on its own batches of the folder."""
    source = ImageFolder(str(folder / "train"))
    recipe = TrainingRecipe(img_size=SIZE, no_aug=True, mean=MEAN)
    pixels = [transform_image(picture, UniformDraws([]), recipe).pixels for picture, _ in source]
    batches, keys = [], []
    for epoch in range(2):
        for (places,) in epoch_batches(epoch):
            keys += [(epoch, at) for at in places]
            raw = torch.stack([torch.from_numpy(pixels[at]) for at in places])
            images = normalized(raw.permute(0, 3, 1, 2), MEAN, STD).numpy().astype("float64")
            labels = np.array([source.targets[at] for at in places])
            batches.append({"images": images, "labels": labels})
    run = TorchRun(np.array(keys), batches)
    rates = vision_learning_rates(
        5e-3, epochs=2, warmup_epochs=1, cooldown_epochs=0, min_lr=1e-3, warmup_lr=2e-3
    )
    optimizer = torch.optim.AdamW(
        vision_decay_groups(model, 0.25), lr=5e-3, betas=(0.8, 0.97), eps=1e-4
    )
    for name, parameter in model.named_parameters():
        if is_decayed_vision(name, parameter):
            run.decayed.add(name)
    average = ModelEma(model, DECAY, True)
    for step, batch in enumerate(batches):
        for group in optimizer.param_groups:
            group["lr"] = rates[step // STEPS]
        soft = smooth_one_hot(torch.from_numpy(batch["labels"]), CLASSES, SMOOTHING)
        loss = soft_target_cross_entropy(model(torch.from_numpy(batch["images"])), soft)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        run.rates.append(optimizer.param_groups[0]["lr"])
        run.losses.append(loss.item())
        optimizer.step()
        average.update(model)
        if (step + 1) % STEPS == 0:
            run.models.append(copy.deepcopy(model))
            run.averages.append(copy.deepcopy(model))
            run.averages[-1].load_state_dict(average.state)
    return run


def test_what_the_trainer_feeds(runs: Runs) -> None:
    first = RESUME_AT * BATCH
    np.testing.assert_array_equal(runs.paddle.keys, runs.torch.keys)
    np.testing.assert_array_equal(runs.resumed.keys, runs.torch.keys[first:])
    for actual, expected in zip(runs.paddle.batches, runs.torch.batches, strict=True):
        named = {name: actual[name] for name in ("images", "labels")}
        assert_same(named, expected, bound=2e-6)  # the pixels are normalized in float32
    saved = sorted(int(one.name.split("-")[1]) for one in runs.folder.glob("out/checkpoint-*"))
    assert saved == [4, 5, 8]


@pytest.mark.parametrize("rank", [0, 1])
def test_shares_of_two_processes(rank: int) -> None:
    """Step and index of each image of two epochs, and of one resumed after its first batch."""
    with mock.patch.object(distributed, "world_size", return_value=2):
        order = ImageSplit(range(TRAIN), None, BATCH).order(BATCH, SEED)
    batches = MicroBatches(order, rank=rank, world=2)
    for epoch in range(2):
        expected = [batch.tolist() for batch in epoch_batches(epoch, 2)[:, rank]]
        assert [(step, [*batch]) for step, batch in enumerate(batches)] == [*enumerate(expected)]
    batches.seek(0, 1)
    assert [[*batch] for batch in batches] == epoch_batches(0, 2)[1:, rank].tolist()


@pytest.mark.parametrize("resumed", [False, True])
def test_training(runs: Runs, resumed: bool) -> None:
    """Losses, rates, decayed set, final weights, statistics, their average, the run's summary."""
    run, reference = runs.resumed if resumed else runs.paddle, runs.torch
    first, count = RESUME_AT if resumed else 0, 2 * STEPS
    partners = set()
    for name, parameter in reference.models[-1].named_parameters():
        if name in reference.decayed:
            partners |= set(to_paddle_names("sot_tiny", reference.models[-1], {name: parameter}))
    assert run.decayed == partners
    np.testing.assert_allclose(run.rates, reference.rates[first:], rtol=1e-12)
    np.testing.assert_allclose(run.losses, reference.losses[first:], rtol=1e-9)
    for arrays, model in ((run.state, reference.models), (run.average, reference.averages)):
        state = dict(model[-1].state_dict())
        # eight steps amplify the rounding of one
        assert_same(arrays, to_paddle_names("sot_tiny", model[-1], state), bound=1e-9)
    summary = {name: run.content["train"][name] for name in ("steps", "epochs", "loss")}
    mean_loss = np.mean(reference.losses)
    expected = {"steps": count, "epochs": 2.0, "loss": mean_loss}
    assert summary == pytest.approx(expected, rel=1e-9)
    assert run.paces == [(step / STEPS, TRAIN) for step in range(first, count)]
    assert run.keeps_options
    assert not run.in_training_mode


def logits_of(models: list[torch.nn.Module], images: np.ndarray) -> list[torch.Tensor]:
    with torch.no_grad():
        return [model.eval()(torch.from_numpy(images)) for model in models]


def test_scores_best_checkpoint_and_report(runs: Runs) -> None:
    """Of the weights and of their average after every epoch; the best is the average's."""
    source = ImageFolder(str(runs.folder / "val"))
    transform = eval_transform(SIZE, crop_pct=CROP, mean=MEAN, std=STD)
    images = np.stack([transform(picture) for picture, _ in source]).astype("float64")
    labels = torch.tensor(source.targets)
    scores, averaged = [], logits_of(runs.torch.averages, images)
    evaluations = runs.paddle.content["evaluations"]
    assert [int(step) for step in evaluations] == [4, 8]
    for raw, average, actual in zip(
        logits_of(runs.torch.models, images), averaged, evaluations.values(), strict=True
    ):
        scores.append(image_scores(average, labels))
        expected = image_scores(raw, labels)
        expected |= {f"ema_{name}": value for name, value in scores[-1].items()}
        assert actual == pytest.approx(expected, rel=1e-9)
    best = best_evaluation([one["loss"] for one in scores], maximise=False)
    kept = json.loads((runs.folder / "out" / "best" / "best.json").read_text(encoding="utf-8"))
    assert int(runs.paddle.content["best"]["step"]) == kept["step"] == STEPS * (best + 1)
    assert kept["value"] == pytest.approx(scores[best]["loss"], rel=1e-9)
    assert runs.tool["scores"] == pytest.approx(scores[best], rel=1e-9)
