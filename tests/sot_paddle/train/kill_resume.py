"""Kill tiny trainings again and again, at any moment, and compare what the resumed runs leave.

    python tests/sot_paddle/train/kill_resume.py text=14 images=3 pretraining=3 --seed 3

One process imports everything once and forks a child for every start of a command, so that a start
costs a second. A child is killed either by the parent after a random time, or by itself at a chosen
file operation of a save.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tests.sot_paddle.train import tiny_images, tiny_pretraining, tiny_run  # noqa: E402
from tests.sot_paddle.train.run_output import in_process  # noqa: E402

LAST = ("last/model.safetensors", "last/optimizer.safetensors", "last/state.json")


@dataclass(frozen=True)
class Scenario:
    """A command to kill.

    Attributes:
        run: trains into the folder that it is given, returns the exit status.
        files: of a finished run, those that must not depend on having been killed.
    """

    run: Callable[[Path], int]
    files: Sequence[str]

    def start(self, out: Path, prepare: Callable[[], None] = lambda: None) -> int:
        """Fork a child that trains; returns its process id."""
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            log = os.open(out.parent / f"{out.name}.log", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
            os.dup2(log, 1)
            os.dup2(log, 2)
            prepare()
            os._exit(self.run(out))
        return child

    def digests(self, out: Path) -> dict[str, str]:
        """Digest of every file that is compared."""
        return {name: hashlib.sha256((out / name).read_bytes()).hexdigest() for name in self.files}


def text(root: Path) -> Scenario:
    """A tiny BERT on 26 sentence pairs."""
    data = tiny_run.write_glue(root / "glue", train=26)
    model = tiny_run.write_model(root / "model")
    flags = ("--num_train_epochs", "4", "--save_steps", "2", "--gradient_accumulation_steps", "2")
    flags += ("--logging_steps", "3", "--save_total_limit", "3")
    train_glue = in_process("train_glue")

    def train(out: Path) -> int:
        return train_glue(tiny_run.command(data, model, out, *flags))

    return Scenario(train, (*LAST, "best/model.safetensors", "RTE.tsv"))


def images(root: Path) -> Scenario:
    """A tiny SoT on 27 images; augmentation, mixing, dropped paths, statistics, average are on."""
    data = tiny_images.write_images(root / "images")
    flags = (*tiny_images.DENSE, "--recovery-interval", "2", "--gradient-accumulation-steps", "2")
    flags += ("--save-total-limit", "3", "--epochs", "2")
    train_image = in_process("train_image")

    def train(out: Path) -> int:
        return train_image(tiny_images.command(data, out, *flags))

    best = ("best/model.safetensors", "best/ema.safetensors", "best/best.json")
    return Scenario(train, (*LAST, "last/ema.safetensors", "last/config.json", *best))


def pretraining(root: Path) -> Scenario:
    """A tiny BERT on instances of 120 sentences."""
    data = tiny_pretraining.write_texts(root)
    flags = ("--model_name_or_path", "bert_base", "--do_train", "--max_steps", "12")
    flags += ("--block_size", "16", "--per_gpu_train_batch_size", "9", "--save_steps", "2")
    flags += ("--logging_steps", "3", "--config_name", str(data / "config.json"))
    flags += ("--tokenizer_name", str(data / "words"), "--data_dir", str(data / "instances"))
    pretrain = in_process("pretrain")

    def train(out: Path) -> int:
        return pretrain([*flags, "--output_dir", str(out)])

    return Scenario(train, LAST)


KINDS = {"text": text, "images": images, "pretraining": pretraining}
OPERATIONS = {
    "tensor": (np, "ascontiguousarray"),
    "checksum": (zlib, "crc32"),
    "sync": (os, "fsync"),
    "replace": (os, "replace"),
    "symlink": (os, "symlink"),
    "rmtree": (shutil, "rmtree"),
}
"""What a save does."""


def die_at(operation: str, count: int) -> Callable[[], None]:
    """Make a child kill itself before the ``count``-th call of a file operation of a save."""

    def prepare() -> None:
        module, name = OPERATIONS[operation]
        original, calls = getattr(module, name), [0]

        def counted(*arguments, **options):
            calls[0] += 1
            if calls[0] == count:
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*arguments, **options)

        setattr(module, name, counted)

    return prepare


def finish(child: int) -> int | None:
    """Wait for a child: its exit status, None when it was killed."""
    _, status = os.waitpid(child, 0)
    return None if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def kill_once(draw: random.Random, scenario: Scenario, out: Path, lifetime: float) -> str:
    """Start a run and kill it; returns how, "" when it was done before."""
    if draw.random() < 0.5:
        operation = draw.choice(tuple(OPERATIONS))
        count = draw.randint(1, 300 if operation == "tensor" else 12)
        child = scenario.start(out, die_at(operation, count))
        how = f"inside a save, before {operation} number {count}"
    else:
        child = scenario.start(out)
        delay = draw.uniform(0.05, 1.1) * lifetime
        time.sleep(delay)
        os.kill(child, signal.SIGKILL)
        how = f"after {delay:.2f} s"
    status = finish(child)
    if status not in (None, 0):
        raise ValueError(f"SIGKILL {how} ended the run with status {status}")
    return "" if status == 0 else how


def kill_runs(kind: str, kills: int, seed: int, root: Path) -> str:
    """Kill runs until so many kills are done, and let each end; says what was done.

    Raises:
        ValueError: a run did not end like the uninterrupted one.
    """
    draw, scenario = random.Random(seed), KINDS[kind](root)
    began = time.monotonic()
    _end(scenario, root / "whole")
    lifetime = time.monotonic() - began
    expected, killed, runs, inside = scenario.digests(root / "whole"), 0, 0, 0
    while killed < kills:
        runs += 1
        out = root / f"run{runs}"
        for _ in range(draw.randint(1, 5)):
            how = kill_once(draw, scenario, out, lifetime)
            if not how:
                break
            killed += 1
            inside += "inside" in how
            left = sorted(path.name for path in out.glob("*"))
            print(f"{kind}, kill {killed}, run {runs}: {how}; left: {' '.join(left)}", flush=True)
            if killed == kills:
                break
        _end(scenario, out)
        found = scenario.digests(out)
        odd = [name for name in expected if found[name] != expected[name]]
        if odd:
            raise ValueError(f"{kind}, run {runs} differs in {', '.join(odd)}")
    return f"{kind}: {killed} kills ({inside} inside a save), every run bit-identical"


def _end(scenario: Scenario, out: Path) -> None:
    """Let a run come to its end."""
    status = finish(scenario.start(out))
    if status != 0:
        said = (out.parent / f"{out.name}.log").read_text(encoding="utf-8")
        raise ValueError(f"{out.name} ended with status {status}\n{said}")


def main() -> None:
    """Kill runs of the kinds asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="+", metavar="KIND=KILLS", help=", ".join(KINDS))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for word in options.kinds:
        kind, _, kills = word.partition("=")
        with tempfile.TemporaryDirectory(prefix="kill_resume_") as folder:
            print(kill_runs(kind, int(kills), options.seed, Path(folder)), flush=True)


if __name__ == "__main__":
    main()
