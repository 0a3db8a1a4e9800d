"""Run every check that needs a GPU; without one, say so and exit 0 (with --require-gpu: 2)."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import sot_paddle  # noqa: F401  (tunes the CPU before Paddle is loaded)

BATCH, LENGTH, STEPS, WARM_UP = 32, 128, 30, 5


def measure(side: str) -> str:
    """Time training steps of BERT-base with the second-order head on one side, on the GPU."""
    import numpy as np

    ids = np.random.RandomState(0).randint(5, 30000, (BATCH, LENGTH))
    if side == "paddle":
        import paddle as framework

        from sot_paddle import create_model

        model = create_model("bert_base_mgcrp")
        optimizer = framework.optimizer.AdamW(1e-5, parameters=model.parameters())
        clear, batch, cuda = optimizer.clear_grad, framework.to_tensor(ids), framework.device.cuda
    else:
        import torch as framework

        from sot_torch_ref import create_model

        framework.backends.cuda.matmul.allow_tf32 = False
        model = create_model("bert_base_mgcrp").to("cuda")
        optimizer = framework.optim.AdamW(model.parameters(), lr=1e-5)
        clear, batch, cuda = optimizer.zero_grad, framework.tensor(ids).to("cuda"), framework.cuda
    model.train()
    for step in range(WARM_UP + STEPS):
        if step == WARM_UP:
            cuda.synchronize()
            start = time.perf_counter()
        (model(batch) ** 2).mean().backward()
        optimizer.step()
        clear()
    cuda.synchronize()
    speed = BATCH * STEPS / (time.perf_counter() - start)
    memory = cuda.max_memory_allocated() / 2**30
    return f"     {side}: {speed:.0f} examples/s, peak memory {memory:.2f} GiB (float32)"


def main(arguments: list[str] | None = None) -> int:
    """Run the checks: 0 all passed or no GPU, 1 one failed, 2 a GPU was required and is absent."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--require-gpu", action="store_true", help="exit 2 without a GPU")
    parser.add_argument("--measure", choices=("paddle", "torch"), help="one timing, for this tool")
    options = parser.parse_args(arguments)
    if options.measure:
        print(measure(options.measure))
        return 0
    from sot_paddle.train import gpu_check

    lines = gpu_check.device_lines()
    if not lines:
        print("gpu-check: skipped, there is no GPU here (or Paddle was built without CUDA)")
        return 2 if options.require_gpu else 0
    print("\n".join(lines))
    with tempfile.TemporaryDirectory(prefix="gpu_check_") as folder:
        flags = gpu_check.prepare(Path(folder))
        found = gpu_check.checks(Path(folder), flags, len(lines) - 1)
        passed = [gpu_check.run_check(check, print) for check in found]
    print(f"gpu-check: {sum(passed)} of {len(passed)} passed")
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
