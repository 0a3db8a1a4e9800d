"""Checkpoints of this project's trainers: one that PyTorch began goes on there, and back."""

import contextlib
import dataclasses
import io
import json
import shutil
from pathlib import Path

import numpy as np
import paddle
import pytest
import torch

import sot_paddle
import sot_torch_ref
from sot_paddle.checkpoint import read_tensors
from sot_paddle.convert import build_plan
from sot_paddle.convert.optimizer.optimizer_commands import convert_state
from sot_paddle.convert.optimizer.optimizer_differences import identical
from sot_paddle.convert.optimizer.optimizer_request import StateRequest
from sot_paddle.convert.optimizer.optimizer_trainer import (
    open_checkpoint,
    read_trainer,
    scheduled_rate,
    trained_groups,
)
from sot_paddle.data.batching import EpochOrder
from sot_paddle.data.cache import tokenize_split
from sot_paddle.data.token_features import pad_rows
from sot_paddle.data.tokenization import WordPieceTokenizer
from sot_paddle.train import checkpointing, image_command, text_command
from sot_torch_ref.train.losses import task_loss
from sot_torch_ref.train.optimizer import HFAdamW, decay_groups
from tests.sot_paddle.convert.both_runs import TorchRun, apart
from tests.sot_paddle.train import tiny_images, tiny_run

LAYOUT, MODEL = "sot_torch_ref", "bert_base_mgcrp"
BEGUN, TOTAL, WARM_UP, RATE, DECAY = 7, 27, 3, 2e-3, 2.0**-7
HEAD = {"q_dim": 5, "k_dim": 3}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "head_dropout": 0.0}
BATCH, LENGTH = 4, 20
DRIFTING = ("k_proj.bias",)  # without gradient in exact arithmetic


def quietly(command, arguments, convert) -> None:
    with contextlib.redirect_stderr(io.StringIO()) as said:
        status = command(arguments, convert)
    assert status == 0, said.getvalue()


class TextRun:
    """A tiny task in float64: our trainer's command, and the same training in PyTorch."""

    def __init__(self, root: Path) -> None:
        self.root, self.files = root, tiny_run
        self.data = self.files.write_glue(root / "glue", dev=3, test=2)
        self.model = self.files.write_model(root / "model")
        self.sizes = {k: v for k, v in self.files.SIZES.items() if k != "model_type"}
        paddle.seed(3)
        own = sot_paddle.create_model(MODEL, 2, **self.sizes, **HEAD)
        sot_paddle.save_weights(own, self.model / "model.safetensors")
        self.start, _ = read_tensors(self.model / "model.safetensors")
        self.back = build_plan(LAYOUT, MODEL, self.start.shapes, reverse=True)
        tokenizer = WordPieceTokenizer(self.model, do_lower_case=False, max_length=LENGTH)
        features = tokenize_split(self.data, "rte", "train", tokenizer)
        self.batches = [
            pad_rows(features, rows, max_length=LENGTH)
            for epoch in range(9)
            for rows in EpochOrder(len(features), BATCH, seed=42, epoch=epoch).batches()
        ][:TOTAL]

    def train(self, out: str, *more: str) -> Path:
        """Run tools/train_glue.py; returns its folder."""
        values = {
            "task_name": "RTE",
            "data_dir": self.data,
            "output_dir": self.root / out,
            "model_name_or_path": self.model,
            "cache_dir": self.root / "cache",
            "max_seq_length": LENGTH,
            "per_gpu_train_batch_size": BATCH,
            "learning_rate": RATE,
            "weight_decay": DECAY,
            "warmup_steps": WARM_UP,
            "max_steps": TOTAL,
            "dtype": "float64",
            **HEAD,
            **NO_DROPOUT,
        }
        flags = [text for name, value in values.items() for text in (f"--{name}", str(value))]
        flags += ["--do_train", "--no_cuda", *more]
        quietly(text_command.run_command, flags, self.files.no_conversion)
        return self.root / out


class TorchLoop(TorchRun):
    """A plain PyTorch loop with the reference."""

    def __init__(self, run: TextRun, state) -> None:
        options = {**run.sizes, **HEAD, **NO_DROPOUT}
        model = sot_torch_ref.create_model(MODEL, 2, **options).train()
        optimizer = HFAdamW(decay_groups(model, DECAY), lr=RATE, eps=1e-8)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda s: s / WARM_UP if s < WARM_UP else (TOTAL - s) / (TOTAL - WARM_UP)
        )

        def loss(model, batch):
            return task_loss(
                model(**{k: v for k, v in batch.items() if k != "labels"}), batch["labels"]
            )

        super().__init__(model, optimizer, schedule, loss, clip=1.0)
        assert set(state) == set(model.state_dict())
        self.load(state)

    def save(self, path: Path) -> Path:
        content = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.schedule.state_dict(),
            "step": BEGUN,
        }
        torch.save(content, path)
        return path

    def in_paddle(self):
        state = self.weights()
        shapes = {n: a.shape for n, a in state.items()}
        return build_plan(LAYOUT, MODEL, shapes).apply(state)


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """The whole run of our trainer with its checkpoint after BEGUN steps, and PyTorch's."""
    torch.set_default_dtype(torch.float64)
    paddle.set_default_dtype("float64")
    try:
        run = TextRun(tmp_path_factory.mktemp("text"))
        run.whole = run.train("whole", "--save_steps", str(BEGUN), "--keep_states", "9")
        run.loop = TorchLoop(run, run.back.apply(run.start))
        run.loop.steps(run.batches[:BEGUN])
        run.begun = run.loop.save(run.root / "begun.pth")
        run.loop.steps(run.batches[BEGUN:])
        yield run
    finally:
        torch.set_default_dtype(torch.float32)
        paddle.set_default_dtype("float32")


def to_paddle(source: Path, target: Path, like: Path, **options) -> str:
    options = {"layout": LAYOUT, **options}
    return convert_state(StateRequest(("torch", source), ("paddle", target), like=like, **options))


def test_our_trainer_continues_what_pytorch_began(text):
    target = text.root / "checkpoint-7"
    said = to_paddle(text.begun, target, text.whole / "checkpoint-14")
    assert "hf_adamw, 48 weights, 96 moments, after 7 updates" in said
    assert f"and --resume {target}" in said
    out = text.train("continued", "--resume", str(target))
    ours, _ = read_tensors(out / "last" / "model.safetensors")
    assert apart(ours, text.loop.in_paddle(), DRIFTING) < 1e-12


def test_pytorch_continues_what_our_trainer_began(text):
    target = text.root / "back.pth"
    convert_state(StateRequest(("paddle", text.whole / "checkpoint-7"), ("torch", target), LAYOUT))
    held = torch.load(target, weights_only=True)
    loop = TorchLoop(text, held["state_dict"])
    loop.optimizer.load_state_dict(held["optimizer"])
    loop.schedule.load_state_dict(held["lr_scheduler"])
    loop.steps(text.batches[BEGUN:])
    ours, _ = read_tensors(text.whole / "last" / "model.safetensors")
    assert apart(ours, loop.in_paddle(), DRIFTING) < 1e-12


def test_a_checkpoint_comes_back_bit_by_bit(text):
    there, back = text.root / "there.pth", text.root / "checkpoint-00"
    first = text.whole / "checkpoint-7"
    convert_state(StateRequest(("paddle", first), ("torch", there), LAYOUT))
    to_paddle(there, back, text.whole / "checkpoint-21")
    for name in ("model.safetensors", "optimizer.safetensors"):
        assert (back / name).read_bytes() == (first / name).read_bytes()
    old, new = (json.loads((f / "state.json").read_text("utf-8")) for f in (first, back))
    for key in ("step", "identity", "schedule", "counters"):
        assert new[key] == old[key]
    progress = json.loads((back / "trainer_state.json").read_text("utf-8"))
    assert progress["global_step"] == BEGUN
    assert progress["epoch"] == pytest.approx(BEGUN / 6)


def test_the_state_of_a_checkpoint(text):
    checkpoint = open_checkpoint(text.whole)  # its last one
    assert checkpoint.state["step"] == TOTAL
    early = open_checkpoint(text.whole / "checkpoint-7")
    state = read_trainer(early)
    assert set(state.steps.values()) == {BEGUN}
    assert state.schedule.position == BEGUN
    assert state.groups[0].rate == pytest.approx(scheduled_rate(early, BEGUN), rel=1e-15)
    assert {g.options["weight_decay"] for g in state.groups} == {DECAY, 0.0}
    assert identical(state, state) == []
    assert "bert.embeddings.layer_norm.weight" in state.groups[1].names
    assert "head.pooling.q_norm.weight" in state.groups[0].names


def test_options_of_the_optimizer_are_those_of_the_run(text):
    early = open_checkpoint(text.whole / "checkpoint-7")
    asked = {"correct_bias": False, "warmup_steps": 0, "warmup_proportion": 0.25}
    other = dataclasses.replace(early, state={**early.state, "identity": early.identity | asked})
    assert {g.options["correct_bias"] for g in read_trainer(early).groups} == {True}
    _, groups = trained_groups(other, {"head.word_fc.weight": (2, 3)}, RATE)
    assert [g.options["correct_bias"] for g in groups] == [False]
    assert scheduled_rate(other, 1) == pytest.approx(RATE / (0.25 * TOTAL), rel=1e-15)


def changed(source: Path, target: Path, change) -> Path:
    held = torch.load(source, weights_only=True)
    change(held)
    torch.save(held, target)
    return target


def other_decay(held):
    for group in held["optimizer"]["param_groups"]:
        group["weight_decay"] *= 2


def other_rate(held):
    for group in held["optimizer"]["param_groups"]:
        group["lr"] *= 1.01


def other_epsilon(held):
    for group in held["optimizer"]["param_groups"]:
        group["eps"] = 1e-6


def plain_adamw(held):
    for group in held["optimizer"]["param_groups"]:
        del group["correct_bias"]
        group["decoupled_weight_decay"] = True


def other_width(held):
    name = "head.word_fc.weight"
    held["model"][name] = held["model"][name][:1]
    held["model"]["head.word_fc.bias"] = held["model"]["head.word_fc.bias"][:1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (other_decay, "weight_decay 0.015625, expected 0.0078125|weight_decay 0.0078125, expected"),
        (other_rate, "after 7 updates the schedule of .* gives 0.00166666667, the state has"),
        (other_epsilon, "eps 1e-08, expected 1e-06"),
        (plain_adamw, "optimizer hf_adamw, expected adamw"),
        (other_width, "K|shape|disagree"),
    ],
)
def test_a_run_with_other_options_is_refused(text, tmp_path, change, message):
    source = changed(text.begun, tmp_path / "other.pth", change)
    with pytest.raises(ValueError, match=message):
        to_paddle(source, tmp_path / "checkpoint-7", text.whole)
    assert not (tmp_path / "checkpoint-7").exists()


def test_in_the_folder_of_a_run_the_name_is_the_step(text):
    with pytest.raises(ValueError, match="in the run's folder call it checkpoint-7"):
        to_paddle(text.begun, text.whole / "checkpoint-8", text.whole)


def test_a_damaged_checkpoint_is_refused(text, tmp_path):
    with pytest.raises(ValueError, match="no checkpoint of the Trainer"):
        open_checkpoint(tmp_path)
    folder = tmp_path / "checkpoint-7"
    to_paddle(text.begun, folder, text.whole)
    with (folder / "model.safetensors").open("ab") as stream:
        stream.write(b"x")
    with pytest.raises(ValueError, match="not whole"):
        open_checkpoint(folder)


@pytest.mark.parametrize("absent", ["warmup_steps", "task_name"])  # train_text, pretrain
def test_a_checkpoint_of_another_command_is_refused(text, tmp_path, absent):
    folder = Path(shutil.copytree(text.whole / "checkpoint-7", tmp_path / "checkpoint-7"))
    state = json.loads((folder / "state.json").read_text("utf-8"))
    del state["identity"][absent]
    (folder / "state.json").write_text(json.dumps(state), "utf-8")
    (folder / checkpointing.MANIFEST).unlink()
    checkpointing.close_folder(folder)
    with pytest.raises(ValueError, match="of another command; expected .*train_glue.py or"):
        convert_state(StateRequest(("paddle", folder), ("torch", tmp_path / "back.pth"), LAYOUT))


def test_a_checkpoint_of_an_image_run_there_and_back(tmp_path):
    files = tiny_images
    data = files.write_images(tmp_path / "images", train=4, val=1)
    flags = files.command(data, tmp_path / "run", "--recovery-interval", "3", *files.DENSE)
    quietly(image_command.run_command, [*flags, "--keep-states", "9"], files.no_conversion)
    first = tmp_path / "run" / "checkpoint-6"
    weights, _ = read_tensors(first / "model.safetensors")
    plan = build_plan("sot_official", "sot_tiny", weights.shapes, reverse=True)
    there, back = tmp_path / "last.pth.tar", tmp_path / "checkpoint-6"
    ends = ("paddle", first), ("torch", there)
    said = convert_state(StateRequest(*ends, "sot_official"))
    assert "the schedule goes by the epoch" in said
    assert "not decayed first (timm)" in said
    held = torch.load(there, weights_only=True)
    assert (held["step"], held["epoch"]) == (6, 1)
    assert "lr_scheduler" not in held
    averages, _ = read_tensors(first / "ema.safetensors")
    expected = plan.apply(averages)
    assert all(np.array_equal(held["state_dict_ema"][n].numpy(), a) for n, a in expected.items())
    assert not torch.equal(held["state_dict_ema"]["cls_token"], held["state_dict"]["cls_token"])
    to_paddle(there, back, tmp_path / "run" / "checkpoint-3", layout="sot_official")
    for name in ("model.safetensors", "optimizer.safetensors", "ema.safetensors"):
        a, b = (read_tensors(folder / name)[0] for folder in (first, back))
        assert set(a) == set(b)
        assert all(a[n].tobytes() == b[n].tobytes() for n in a), name
    old, new = (json.loads((f / "state.json").read_text("utf-8")) for f in (first, back))
    assert (new["step"], new["schedule"]) == (old["step"], old["schedule"])
    quietly(image_command.run_command, [*flags, "--resume", str(back)], files.no_conversion)

    def saved_earlier(held):  # as newer releases of timm do, and without averages
        del held["state_dict_ema"]
        for group in held["optimizer"]["param_groups"]:
            group["lr"] = 0.005005  # the last epoch's

    source = changed(there, tmp_path / "earlier.pth.tar", saved_earlier)
    said = to_paddle(source, tmp_path / "earlier", tmp_path / "run", layout="sot_official")
    assert "after 6 updates, learning rate 1e-05" in said
    assert "the moving average starts from the weights" in said
    made = json.loads((tmp_path / "earlier" / "state.json").read_text("utf-8"))
    assert made["schedule"] == old["schedule"]
