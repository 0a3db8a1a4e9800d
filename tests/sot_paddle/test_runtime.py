"""CPU tuning: which levers, when they are left alone, and both import orders in fresh processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sot_paddle import runtime

ROOT = Path(__file__).resolve().parents[2]
LEVERS = (
    "MKL_DEBUG_CPU_TYPE",
    "OMP_NUM_THREADS",
    "FLAGS_use_stride_kernel",
    "SOT_PADDLE_TUNE",
    "PADDLE_LOCAL_SIZE",
    "PADDLE_TRAINERS_NUM",
)
AVX512 = {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd"}


def start(code: str, **environment: str) -> subprocess.Popen:
    """Start a fresh interpreter without any lever set but those given."""
    clean = {key: value for key, value in os.environ.items() if key not in LEVERS}
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", code],
        cwd=ROOT,
        env={**clean, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen) -> dict:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return json.loads(out.splitlines()[-1])


REPORT = """
import json, os, sys
report = {
    "heavy": sorted({"paddle", "paddlenlp", "torch", "numpy", "yaml"} & set(sys.modules)),
    "environment": {k: v for k, v in os.environ.items() if k in LEVERS},
    "applied": sot_paddle.runtime.tune_cpu(),
    "given": sorted({*LEVERS} & {*sot_paddle.runtime.given_environment()}),
    "again": sot_paddle.runtime.tune_cpu(),
    "stamp": sot_paddle.runtime.environment_stamp(),
}
""".replace("LEVERS", repr(LEVERS))
PADDLE = """
import paddle
flag = "FLAGS_use_stride_kernel"
report |= {"product": (paddle.ones([2, 3]) @ paddle.ones([3, 1])).flatten().tolist(),
    "stride": paddle.get_flags(flag)[flag], "late_stamp": sot_paddle.runtime.environment_stamp()}
"""
STRIDES = 'import json, os; print(json.dumps({"strides": os.environ["FLAGS_use_stride_kernel"]}))'
PRINT = "print(json.dumps(report))"
SET = {"OMP_NUM_THREADS": "3", "MKL_DEBUG_CPU_TYPE": "1", "FLAGS_use_stride_kernel": "1"}


@pytest.fixture(scope="module")
def processes() -> Iterator[dict[str, subprocess.Popen]]:
    """All fresh interpreters of this file, started together."""
    started = {
        "ours first": start(f"import sot_paddle{REPORT}{PADDLE}{PRINT}"),
        "paddle first": start(f"import paddle\nimport sot_paddle{REPORT}{PADDLE}{PRINT}"),
        "align first": start(f"import align\n{STRIDES}"),
        "off": start(f"import sot_paddle{REPORT}{PRINT}", SOT_PADDLE_TUNE="0"),
        "set by the user": start(f"import sot_paddle{REPORT}{PRINT}", **SET),
    }
    yield started
    for process in started.values():
        if not process.stdout.closed:  # its test was not selected
            process.kill()
            process.communicate()


def test_importing_the_package_loads_nothing_heavy_and_tunes(processes) -> None:
    report = finish(processes["ours first"])
    assert report["heavy"] == []
    assert report["given"] == []  # a child sees the user's own environment
    environment, applied = report["environment"], report["applied"]
    assert environment["OMP_NUM_THREADS"] == str(len(os.sched_getaffinity(0)))
    assert environment["FLAGS_use_stride_kernel"] == "0"
    assert environment.get("MKL_DEBUG_CPU_TYPE") == runtime.mkl_cpu_type(*runtime.processor())
    for name, value in environment.items():
        assert applied[name] == value
    assert report["again"] == applied
    assert report["stamp"]["tuning"] == applied
    assert "paddle_device" not in report["stamp"]
    # then Paddle comes, and the levers hold
    assert report["product"] == [3.0, 3.0]
    assert report["stride"] is False
    assert report["late_stamp"]["paddle_device"] == "cpu"
    assert report["late_stamp"]["packages"]["paddlepaddle"].startswith("3.")


def test_paddle_may_be_imported_first(processes) -> None:
    report = finish(processes["paddle first"])
    assert "paddle" in report["heavy"]
    assert "FLAGS_use_stride_kernel" not in report["environment"]
    assert report["stride"] is True  # views keep the meaning the program began with
    assert report["applied"]["FLAGS_use_stride_kernel"].startswith("left as it is")
    threads = len(os.sched_getaffinity(0))
    assert report["applied"]["OMP_NUM_THREADS"] == f"{threads} (through Paddle)"


def test_a_users_model_is_compared_as_paddle_is_installed(processes) -> None:
    """PADDLE: 3.3.1 writes nothing with ``x[:, index] = value`` where strided views are off."""
    assert finish(processes["align first"])["strides"] == "1"


def test_tuning_can_be_switched_off_and_what_the_user_set_is_kept(processes) -> None:
    report = finish(processes["off"])
    assert report["environment"] == {"SOT_PADDLE_TUNE": "0"}
    assert report["applied"] == {"SOT_PADDLE_TUNE": "0 (nothing tuned)"}
    report = finish(processes["set by the user"])
    assert report["environment"] == SET
    assert report["applied"]["OMP_NUM_THREADS"] == "3 (set before)"


@pytest.mark.parametrize(
    ("vendor", "flags", "expected"),
    [
        ("AuthenticAMD", AVX512 | {"avx2", "fma"}, "7"),
        ("AuthenticAMD", {"avx2", "fma"}, "5"),
        ("AuthenticAMD", AVX512 - {"avx512dq"} | {"avx2", "fma"}, "5"),
        ("AuthenticAMD", {"avx2"}, None),
        ("GenuineIntel", AVX512 | {"avx2", "fma"}, None),
    ],
)
def test_mkl_code_path(vendor: str, flags: set, expected: str | None) -> None:
    assert runtime.mkl_cpu_type(vendor, frozenset(flags)) == expected


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, 8),
        ({"PADDLE_TRAINERS_NUM": "2"}, 4),
        ({"PADDLE_LOCAL_SIZE": "4", "PADDLE_TRAINERS_NUM": "16"}, 2),
        ({"PADDLE_TRAINERS_NUM": "100"}, 1),
        ({"PADDLE_TRAINERS_NUM": ""}, 8),
    ],
)
def test_threads_are_shared_among_local_processes(monkeypatch, variables, expected) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    for name in LEVERS:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert runtime._threads() == expected
