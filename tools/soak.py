"""Train and build small models for long in one process: does memory grow, do handles stay open?

Text and image models take turns. Exit status 0 when the resident memory grows by less than 3 %
after the first tenth of the steps, and of the builds, and no more handles are open; 1 when not.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import sot_paddle
from sot_paddle.cli import CommandParser, command
from sot_paddle.runtime import quiet_imports

BERT = {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "vocab_size": 50}
SOT = {"img_size": 32, "embed_dim": 24, "depth": 2, "num_heads": 3, "head_num_heads": 3}


def build(turn: int) -> tuple:
    """A text or an image model, and what it is fed: ids (3, 7), images (3, 3, 32, 32)."""
    import paddle

    if turn % 2:
        return sot_paddle.create_model("sot_tiny", 3, wr_dim=4, **SOT), paddle.randn([3, 3, 32, 32])
    return sot_paddle.create_model("bert_base_mgcrp", 3, **BERT), paddle.randint(1, 50, [3, 7])


def trainer(turn: int) -> Callable[[], None]:
    """One training step of a model."""
    import paddle

    from sot_paddle.train.ema import ModelEma
    from sot_paddle.train.optimizer import HFAdamW

    model, inputs = build(turn)
    optimizer = HFAdamW(learning_rate=1e-4, parameters=model.parameters(), weight_decay=0.01)
    average, labels = ModelEma(model, 0.99), paddle.to_tensor([0, 1, 2])

    def step() -> None:
        paddle.nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        optimizer.clear_grad()
        average.update()

    return step


def grows(what: str, count: int, work: Callable[[int], object]) -> bool:
    """Do it so many times; print and judge what was used after a tenth and in the end."""
    used = []
    for turn in range(count):
        work(turn)
        if turn + 1 in (count // 10, count):
            gc.collect()
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            size = pages * os.sysconf("SC_PAGE_SIZE") / 2**20
            used.append((size, len(os.listdir("/proc/self/fd"))))
    (first, opened), (last, left) = used
    print(f"{count} {what}: {first:.1f} to {last:.1f} MiB, {opened} to {left} handles")
    return last >= 1.03 * first or left > opened


@command("soak: error")
def main(arguments: list[str]) -> int:
    """Run the command; returns its exit status."""
    CommandParser(prog="soak", description=__doc__, status="").parse_args(arguments)
    with quiet_imports():
        steps = [trainer(0), trainer(1)]
    trained = grows("training steps", 2000, lambda turn: steps[turn % 2]())
    return int(grows("model builds", 300, build) or trained)


if __name__ == "__main__":
    sys.exit(main())
