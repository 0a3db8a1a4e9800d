"""The command that shows where a trained model looks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sot_paddle.atomic import write_atomically
from sot_paddle.cli import CommandParser
from sot_paddle.runtime import quiet_imports

DESCRIPTION = """\
Show where ClassT, WordT and their sum look: heat maps over images for a trained image model, the
impact of each word for a trained text model. Writes DIR/images.png or DIR/words.png, and prints the
path. Of a run of probes (tools/train_adapter.py --model probes) it draws what each layer scores,
DIR/layers.png."""
EXAMPLES = """\
examples:
  python tools/visualize.py output/digits digits --out output/seen
  python tools/visualize.py output/train/RUN DATA --count 2 --out output/seen
  python tools/visualize.py output/train/RUN a.jpg b.jpg --out output/seen
  python tools/visualize.py OUTPUT --sentences lines.txt --out output/seen
  python tools/visualize.py output/probes/rte output/probes/mrpc --out output/seen
"""


def run_command(arguments: Sequence[str]) -> None:
    """Run ``tools/visualize.py``."""
    options = parser().parse_args(arguments)
    place, out = Path(options.model), Path(options.out)
    if options.count < 1:
        raise ValueError(f"--count must be at least 1, got {options.count}")
    with quiet_imports():  # --help needs no framework
        from sot_paddle.explain import drawing, figures
        from sot_paddle.train.device import prepare_device
        from sot_paddle.train.model_folder import find_folder
    prepare_device(dtype="float32", cpu=options.cpu)
    if find_folder(place, of_images=True) is not None:
        if options.sentences or not options.images:
            raise ValueError(f"{place} is an image model: name image files, a folder, or digits")
        name, figure = "images.png", drawing.draw_images(options, place)
    elif find_folder(place, of_images=False) is not None:
        if options.images or not options.sentences:
            raise ValueError(f"{place} is a text model: give --sentences, not images")
        name, figure = "words.png", drawing.draw_words(options, place)
    else:
        runs = [place, *map(Path, options.images)]
        name, figure = "layers.png", figures.layer_figure(list(map(figures.layer_scores, runs)))
    print(write_atomically(out / name, figure))


def parser() -> CommandParser:
    """The command line of ``tools/visualize.py``."""
    command_line = CommandParser(prog="visualize.py", description=DESCRIPTION, epilog=EXAMPLES)
    add = command_line.add_argument
    add("model", metavar="MODEL_FOLDER", help="of train_image, _glue or _text, or of probes")
    images = "image files; a folder of class folders, or with val in it; or digits; of probes: runs"
    add("images", nargs="*", metavar="IMAGES", help=images)
    add("--out", required=True, metavar="DIR", help="where the figure is written")
    add("--count", type=int, default=1, metavar="N", help="images of each class folder [1]")
    add("--sentences", metavar="FILE", help="a line each; columns by TAB, the label first if given")
    add("--no-ema", action="store_true", help="raw weights instead of the moving average")
    add("--cpu", action="store_true", help="use the CPU even where there is a GPU")
    return command_line
