"""What only a GPU can show, as a list of commands with their verdicts.

Every check runs in its own process with TF32 off and deterministic kernels on, so that one
failure does not hide the next. Nothing here has been run where there is no GPU.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sot_paddle.data.corpus import write_corpus

ROOT = Path(__file__).resolve().parents[2]
EXACT = {
    "NVIDIA_TF32_OVERRIDE": "0",
    "FLAGS_cudnn_deterministic": "1",
    "FLAGS_embedding_deterministic": "1",
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
}
"""Environment of every check: full float32 products, the same result each time."""

_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_SIZES = {
    "model_type": "bert",
    "hidden_size": 192,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "intermediate_size": 384,
    "max_position_embeddings": 64,
}


@dataclass(frozen=True)
class Check:
    """One check.

    Attributes:
        name: of the check.
        commands: run one after the other; all must exit 0.
        judge: looks at what they left, says what is wrong, "" when nothing is.
    """

    name: str
    commands: tuple[tuple[str, ...], ...]
    judge: Callable[[], str] = lambda: ""


def device_lines() -> list[str]:
    """The stamp: GPUs with memory and capability, CUDA, cuDNN; [] without a GPU."""
    import paddle

    if not paddle.is_compiled_with_cuda() or not paddle.device.cuda.device_count():
        return []
    lines = [
        f"paddle {paddle.__version__}, CUDA {paddle.version.cuda()}, cuDNN {paddle.version.cudnn()}"
    ]
    for index in range(paddle.device.cuda.device_count()):
        facts = paddle.device.cuda.get_device_properties(index)
        lines.append(
            f"gpu:{index} {facts.name}, {facts.total_memory / 2**30:.1f} GiB, "
            f"compute capability {facts.major}.{facts.minor}"
        )
    return lines


def prepare(folder: Path) -> tuple[str, ...]:
    """Write the embedded corpus, a vocabulary and sizes; returns the flags of a small run."""
    data = write_corpus(folder)
    words: set[str] = set()
    for path in data.glob("*.tsv"):
        for line in path.read_text(encoding="utf-8").splitlines():
            words.update(line.split("\t")[-1].lower().replace(".", " . ").split())
    (folder / "vocab.txt").write_text(
        "\n".join([*_SPECIAL, *sorted(words)]) + "\n", encoding="utf-8"
    )
    sizes = _SIZES | {"vocab_size": len(_SPECIAL) + len(words)}
    (folder / "config.json").write_text(json.dumps(sizes), encoding="utf-8")
    return (
        *("--task_name", "CoLA", "--data_dir", str(data), "--do_lower_case", "--do_train"),
        *("--do_eval", "--model_name_or_path", "bert_base_mgcrp", "--config_name", str(folder)),
        *("--tokenizer_name", str(folder), "--cache_dir", str(folder / "cache")),
        *("--max_seq_length", "32", "--learning_rate", "1e-4", "--save_steps", "20"),
        *("--max_steps", "60", "--per_gpu_train_batch_size", "16", "--logging_steps", "20"),
    )


def checks(folder: Path, flags: Sequence[str], gpus: int) -> list[Check]:
    """All checks, in the order of the report.

    Args:
        folder: for what they write.
        flags: of a small training run, see :func:`prepare`.
        gpus: number of GPUs.

    Returns:
        The checks; those of several processes use at most two GPUs.
    """
    train = (sys.executable, str(ROOT / "tools" / "train_glue.py"), *flags)
    measure = (sys.executable, str(ROOT / "tools" / "gpu_check.py"), "--measure")
    launch = (sys.executable, "-m", "paddle.distributed.launch", "--log_dir", str(folder / "log"))
    launch += ("--devices", ",".join(str(index) for index in range(min(2, gpus))))

    def run(name: str, *more: str) -> tuple[str, ...]:
        return (*train, *more, "--output_dir", str(folder / name))

    whole = run("whole")
    middle = str(folder / "whole" / "checkpoint-40")
    found = [
        Check(f"alignment in {dtype}", ((sys.executable, "-m", "align", "--dtype", dtype),))
        for dtype in ("float64", "float32")
    ]
    found += [
        Check(
            f"training with {kind} {level}",
            (run(f"{kind}-{level}", f"--{kind}", "--fp16_opt_level", level),),
        )
        for kind in ("fp16", "bf16")
        for level in ("O1", "O2")
    ]
    digits = ROOT / "configs" / "digits" / "sot_digits.yaml"
    images = (sys.executable, str(ROOT / "tools" / "train_image.py"), "--config", str(digits))
    images += ("--set", "cpu=false", "--epochs", "3", "--cooldown-epochs", "0", "--output")
    found += [
        Check("training on images in float32", ((*images, str(folder / "images")),)),
        Check("training on images with --amp", ((*images, str(folder / "images-amp"), "--amp"),)),
    ]
    resumed = run("resumed", "--resume", middle)
    found.append(
        Check("resume is bit-identical", (whole, resumed), lambda: _compare(folder, "whole"))
    )
    found.append(
        Check(
            f"nccl on {min(2, gpus)} GPU(s)",
            ((*launch, *train[1:], "--output_dir", str(folder / "nccl")),),
        )
    )
    found.append(Check("memory and throughput", ((*measure, "paddle"), (*measure, "torch"))))
    return found


def run_check(check: Check, say: Callable[[str], None]) -> bool:
    """Run one check and print its verdict; what a measuring command prints is shown."""
    environment = os.environ | EXACT
    for command in check.commands:
        done = subprocess.run(  # noqa: S603 (our own commands)
            command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False
        )
        if done.returncode:
            tail = (done.stderr or done.stdout).strip().splitlines()[-3:]
            say(f"FAIL {check.name}: exit {done.returncode}: {' | '.join(tail)}")
            return False
        if "--measure" in command:
            say(done.stdout.strip())
    problem = check.judge()
    say(f"{'FAIL' if problem else 'ok  '} {check.name}{': ' if problem else ''}{problem}")
    return not problem


def _compare(folder: Path, whole: str) -> str:
    names = ("model.safetensors", "optimizer.safetensors")
    differing = [
        name
        for name in names
        if (folder / whole / "last" / name).read_bytes()
        != (folder / "resumed" / "last" / name).read_bytes()
    ]
    return f"{', '.join(differing)} differ" if differing else ""
