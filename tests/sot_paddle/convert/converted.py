"""What a conversion gives: the shapes of a plan's tensors, the tensors of a file, the way back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sot_paddle.checkpoint import read_tensors, write_tensors
from sot_paddle.convert import Manifest, build_plan, convert_file

CONSTANTS = (*("relative_position_index", "attn_mask", "position_ids", "relative_positions_mat"),)
"""Ends of the names of what the models make themselves."""


@dataclass
class Conversion:
    """Files of one folder, by name, converted by the table of one layout."""

    folder: Path
    layout: str
    model: str

    def __call__(self, src: str | Path, dst: str | Path, **options) -> Manifest:
        """Convert one into another; absolute paths may lie elsewhere."""
        ends = (self.folder / src, self.folder / dst)
        return convert_file(*ends, self.layout, self.model, **options)

    def write(self, name: str, arrays: Mapping[str, np.ndarray], *metadata) -> Path:
        """Write a file of tensors."""
        write_tensors(self.folder / name, arrays, *metadata)
        return self.folder / name

    def read(self, name: str) -> dict[str, np.ndarray]:
        """The tensors of a file."""
        return read_tensors(self.folder / name)[0]


def assert_same_file(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """A file holds these arrays: names, dtypes, shapes and every bit."""
    tensors, _ = read_tensors(path)
    assert set(tensors) == set(arrays)
    for name, array in arrays.items():
        assert tensors[name].dtype == array.dtype, name
        assert tensors[name].shape == array.shape, name
        assert tensors[name].tobytes() == array.tobytes(), name


def assert_comes_back(plan, layout: str, model: str, arrays: Mapping[str, np.ndarray]):
    """There and back by the plans alone is the identity, counters (which begin again) apart.

    Constants of the source that nothing makes (window indices, masks) do not come back.

    Returns:
        The plan of the way back.
    """
    back = build_plan(layout, model, plan.destination_shapes, reverse=True)
    returned = back.apply(plan.apply(arrays))
    constants = {name for name in arrays if name.endswith(CONSTANTS)}
    assert set(returned) == set(arrays) - constants
    for name, array in returned.items():
        expected = np.zeros((), np.int64) if name.endswith("tracked") else arrays[name]
        np.testing.assert_array_equal(array, expected, err_msg=name)
        assert array.dtype == arrays[name].dtype, name
    return back
