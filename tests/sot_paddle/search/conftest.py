import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[2]


class Bench:
    """A folder with a stand-in for a training command, a space for it, and searches of it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.tools = folder, folder / "tools"
        self.tools.mkdir()
        shutil.copy(HERE / "standin_training.py", self.tools / "train_glue.py")

    def space(self, **changes: object) -> Path:
        """Write a space that draws x in [0, 1] and a word; the stand-in likes x near 0.3."""
        lines = {"command": "train_glue", "metric": "loss", "direction": "minimize"}
        lines |= {"trials": 4, "sampler": "tpe", "startup_trials": 2, "pruner": "none"}
        text = "".join(f"{name}: {value}\n" for name, value in (lines | changes).items())
        text += "parameters:\n  x: {kind: uniform, low: 0.0, high: 1.0}\n"
        text += "  word: {kind: choice, values: [red, old, 3]}\n"
        path = self.folder / "space.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    def search(self, out: Path, *options: object, training: Sequence[object] = ()) -> list[str]:
        """The command line of a search, without the program."""
        own = ["--space", self.folder / "space.yaml", "--output_dir", out, *options]
        return [*map(str, own), "--", *map(str, training)]

    def process(self, command: str, arguments: Sequence[str]) -> list[str]:
        """How to start a command on the stand-in in a process of its own."""
        code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from pathlib import Path\n"
        code += f"from sot_paddle.search.{command}_command import run_command\n"
        code += "from sot_paddle.cli import command\n"
        code += f"main = command({command!r})(lambda a: run_command(a, Path(sys.argv[1])))\n"
        code += "sys.exit(main(sys.argv[2:]))"
        return [sys.executable, "-c", code, str(self.tools), *arguments]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)
