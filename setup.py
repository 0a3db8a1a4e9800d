"""Which packages an installation has; everything else stands in pyproject.toml.

Beside the three packages, `tools/` is installed as ``sot_paddle_tools`` (the console commands are
its ``main`` functions) and `configs/` as ``sot_paddle.configs``.
"""

from setuptools import find_packages, setup

PACKAGES = ("sot_paddle", "sot_torch_ref", "align")

setup(
    packages=[
        *find_packages(include=[f"{name}{rest}" for name in PACKAGES for rest in ("", ".*")]),
        "sot_paddle.configs",
        "sot_paddle_tools",
    ],
    package_dir={"sot_paddle.configs": "configs", "sot_paddle_tools": "tools"},
)
