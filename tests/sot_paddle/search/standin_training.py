"""Stands for a training command in tests of the search: the same folder, lines and exit statuses.

It "trains" for ``--steps`` steps and remembers each in the folder, so that it goes on as a training
does; its loss falls to ``(x - 0.3)^2``. It tells what happened to it in the file ``steps``.
"""

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, os.environ.get("STANDIN_ROOT", str(Path.cwd())))
from sot_paddle.train import folder_lock

parser = argparse.ArgumentParser()
parser.add_argument("--output_dir", type=Path)
parser.add_argument("-c", "--config", type=Path)
parser.add_argument("--set", action="append", default=[], dest="assigned")
parser.add_argument("--steps", type=int, default=3)
parser.add_argument("--seconds", type=float, default=0.0)  # of each step
parser.add_argument("--nan_above", type=float, default=2.0)
parser.add_argument("--refuse", action="store_true")
parser.add_argument("--crash", action="store_true")
parser.add_argument("--do_train", action="store_true")
parser.add_argument("--do_eval", action="store_true")
options = parser.parse_args()
assert options.do_train
assert options.do_eval
drawn = dict(pair.split("=", 1) for pair in options.assigned)
out, x = options.output_dir, float(drawn.get("x", 0.5)) + 0.01 * int(drawn.get("seed", 0))
if options.refuse:
    print("train_glue: the stand-in refuses", file=sys.stderr)
    sys.exit(2)
if options.crash:
    raise RuntimeError("the stand-in crashes")
stop = []
signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
out.mkdir(parents=True, exist_ok=True)
with folder_lock.hold(out):
    (out / "run.json").write_text("{}")
    done = (out / "steps").read_text().split() if (out / "steps").exists() else []
    evaluations = {}
    for step in range(1, options.steps + 1):
        loss = (x - 0.3) ** 2 + 1.0 / step if x <= options.nan_above else None
        scores = {"loss": loss, "accuracy": 1.0 - x}
        evaluations[str(step)] = scores
        if str(step) in done:
            continue
        if loss is None:
            print("train_glue: the loss is nan", file=sys.stderr)
            sys.exit(2)
        time.sleep(options.seconds)
        with open(out / "steps", "a") as stream:
            stream.write(f"{step}\n")
        (out / f"checkpoint-{step}").mkdir()
        (out / "last").unlink(missing_ok=True)
        (out / "last").symlink_to(f"checkpoint-{step}")
        (out / "best").mkdir(exist_ok=True)
        head = f"step {step}/{options.steps} epoch {step / 2:.2f}"
        print(f"{head} loss 0.5000 lr 0.001 2.00 steps/s, 8 examples/s, 0:05 left")
        print(f"{head} dev: loss {loss:.4f} accuracy {1 - x:.4f}", flush=True)
        if stop:
            print("train_glue: stopped after the step", file=sys.stderr)
            sys.exit(143)
    last = {"step": str(step), **scores}
    content = {"metric": "accuracy", "evaluations": evaluations, "finished": True}
    content |= {"last": last, "best": {**last, "accuracy": 1.0 - x / 2}}
    (out / "metrics.json").write_text(json.dumps(content))
