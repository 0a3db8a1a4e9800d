"""Hidden states: those of a live encoder, layer by layer, and what a file gives back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import h5py
import numpy as np
import torch

from align.cases import stored_layout
from align.cases.both_sides import BothSides, Setting, stamps
from align.frameworks import on_paddle, on_torch
from align.record.arrays import Arrays
from sot_paddle.data.stored.file_layout import stored_split
from sot_paddle.data.stored.live_states import LiveStates, hidden_states
from sot_paddle.data.stored.state_files import StateReader, StateSizes, StateWriter


def live(setting: Setting) -> BothSides:
    """Every hidden state of a model in training mode against transformers' own."""
    pair, dtype, ours_model = setting.pair, setting.dtype, setting.pair.model
    batch = {name: value for name, value in pair.batch.items() if name != "labels"}
    with on_paddle.default_dtype(dtype):
        made = hidden_states(ours_model, batch)
    modes = [ours_model.training]
    model = pair.fresh_reference().eval()
    with on_torch.default_dtype(dtype), torch.no_grad():
        given = {name: torch.from_numpy(value) for name, value in batch.items()}
        theirs = model.bert(**given, output_hidden_states=True).hidden_states

    def named(states: Any) -> Arrays:
        return {f"hidden state {at}": np.asarray(states[:, at]) for at in range(len(theirs))}

    ours = named(on_paddle.numpy(made))
    rows, *row = ours["hidden state 0"].shape
    labels = np.arange(rows)
    sizes = (len(ours), *row)
    source = LiveStates(
        ours_model, lambda rows: {n: v[rows] for n, v in batch.items()}, rows, [labels], sizes, {}
    )
    ours_model.eval()  # it stays in the mode that it has
    with on_paddle.default_dtype(dtype):
        alone = source.states([1])
    modes.append(ours_model.training)
    names = list(ours)
    return BothSides(
        {
            **ours,
            "the second row alone": alone[0],
            "sizes of a row": np.asarray(source.of_row),
            "rows": np.asarray(len(source)),
            "labels": source.labels[0],
            "modes afterwards": np.asarray(modes),
            "in its precision": np.asarray(source.dtype == dtype),
        },
        {
            **{name: on_torch.numpy(state) for name, state in zip(names, theirs, strict=True)},
            "the second row alone": np.stack([on_torch.numpy(state)[1] for state in theirs]),
            "sizes of a row": np.asarray((len(theirs), *theirs[0].shape[1:])),
            "rows": np.asarray(len(theirs[0])),
            "labels": labels,
            "modes afterwards": np.asarray([True, False]),
            "in its precision": np.asarray(True),
        },
        {
            "without the embedding output": dict(zip(names, [*ours.values()][1:], strict=False)),
            "the layers in reverse": dict(zip(names, [*ours.values()][::-1], strict=True)),
        },
        "the hidden states",
        stamps=stamps(on_paddle.stamp(made), on_torch.stamp(theirs[0])),
    )


def stored(
    setting: Setting, *, task: str, dtype: str, split: str = "train", rows: int = 5
) -> BothSides:
    """Rows written by ours, in two runs, read back by ours and by h5py alone under the original's
    names; both are the rows bit for bit.

    Args:
        setting: of the case.
        task: with ``split`` a key of the original's files.
        dtype: of the file.
        split: of the task.
        rows: written.
    """
    rng, folder = np.random.default_rng(17), setting.folder()
    states = rng.normal(size=(rows, 3, 4, 6)).astype(dtype)
    layout = stored_split(task, split)
    labels = [rng.integers(0, 4, rows) for _ in layout.labels]
    sizes = StateSizes(*states.shape, dtype)
    for stop in (2, rows):
        with StateWriter(folder, layout, sizes, {"from": "numbers"}) as writer:
            part = slice(writer.done, stop)
            writer.append(states[part], [kind[part] for kind in labels], range(*part.indices(rows)))
    reader = StateReader(folder, layout)
    order = [*reversed(range(rows))]
    ours = {"states": reader.states(order)[::-1], "labels": reader.labels[0], "rows": reader.rows}
    reader.close()
    original = stored_layout.given()[f"{task} {split}"]
    (*of_labels, _), ends = original["labels"][:3], original["labels"][3:5]
    last = {"last tokens": ends} if ends else {}
    files = {"states": original["states"][:2], "labels": of_labels, **last}
    files["rows"] = original["rows"][:2]
    found = {"files": _names(path.name for path in layout.paths(folder))}
    for kind, (file, name) in files.items():
        with h5py.File(folder / file) as opened:
            found[f"{kind} by h5py"] = opened[name][:]
            found[f"{kind}: last_index"] = np.asarray(opened[name].attrs["last_index"])
    expected = {"states": states, "labels": labels[0], "rows": np.arange(rows)}
    by_kind = expected | {"last tokens": labels[-1]}
    return BothSides(
        ours | found,
        expected
        | {"files": _names(file for file, _ in files.values())}
        | {f"{kind} by h5py": by_kind[kind] for kind in files}
        | {f"{kind}: last_index": np.asarray(rows) for kind in files},
        {
            "the next row": ours | found | {"states": np.roll(ours["states"], 1, axis=0)},
            "layers and tokens exchanged": ours
            | found
            | {"states": ours["states"].reshape(rows, 4, 3, 6)},
            "a bit of one number": ours | found | {"states": _with_a_bit(ours["states"])},
        },
        "the file",
        framework_free=True,
        note=f"{rows} rows of {dtype} in {layout.states.file}",
    )


def _names(files: Iterable[str]) -> np.ndarray:
    """Names of files as numbers."""
    return np.frombuffer(" ".join(sorted(files)).encode(), np.uint8).astype("int64")


def _with_a_bit(states: np.ndarray) -> np.ndarray:
    changed = states.copy()
    changed.ravel()[7] = np.nextafter(changed.ravel()[7], np.inf, dtype=states.dtype)
    return changed
