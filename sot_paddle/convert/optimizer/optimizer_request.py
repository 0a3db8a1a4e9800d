"""What the command that moves a training is asked for, checked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sot_paddle.convert.engine.destination import OURS, check_free
from sot_paddle.convert.formats.torch_files import SUFFIXES
from sot_paddle.convert.optimizer.optimizer_checkpoint import OPTIMIZER, SCHEDULER, TRAINER_STATE
from sot_paddle.convert.optimizer.optimizer_file import FILE

SIDES = ("torch", "paddle")


@dataclass(frozen=True)
class StateRequest:
    """What to convert, and how.

    Attributes:
        source: (side, path).
        target: (the other side, path).
        layout: key of ``LAYOUTS``: PyTorch's names.
        model: registry name; what SRC or --like says when "".
        like: a checkpoint of the run that is to continue, on the target's side.
        names: JSON file with the names of PyTorch's parameter groups.
        optimizer: kind of PyTorch's optimizer, where its state does not tell.
        key: of the entry with PyTorch's weights, where its file has several.
        step: updates of the run, where nothing tells.
        unused: weights that no gradient has reached yet are no mistake.
        overwrite: replace an existing target.
    """

    source: tuple[str, Path]
    target: tuple[str, Path]
    layout: str
    model: str = ""
    like: Path | None = None
    names: Path | None = None
    optimizer: str = ""
    key: str = ""
    step: int | None = None
    unused: bool = False
    overwrite: bool = False

    def __post_init__(self) -> None:
        sides = (self.source[0], self.target[0])
        if sorted(sides) != sorted(SIDES):
            raise ValueError(f"--from {sides[0]} --to {sides[1]}: expected torch and paddle")


def check_target(request: StateRequest) -> None:
    """Refuse a target that may not be written.

    Raises:
        ValueError: an unknown suffix, no folder for it, it exists, or it is the source.
    """
    side, target = request.target
    is_file = side == "torch" and target.suffix in SUFFIXES
    if target.suffix and not is_file and not target.name.startswith("checkpoint-"):
        ends = f", or a file that ends in {', '.join(SUFFIXES)}" if side == "torch" else ""
        raise ValueError(f"{target}: expected a folder (a name without a suffix){ends}")
    ours = {*OURS, FILE, OPTIMIZER, SCHEDULER, TRAINER_STATE, "state.json", "ema.safetensors",
            "optimizer.safetensors"}  # fmt: skip
    sources = (request.source[1],)
    check_free(target, sources, ours, directory=not is_file, overwrite=request.overwrite)
