"""The command that stores hidden states (``tools/extract_hidden_states.py``)."""

from __future__ import annotations

from pathlib import Path

from sot_paddle.atomic import hold
from sot_paddle.data.glue_tasks import get_task
from sot_paddle.data.stored import states
from sot_paddle.data.stored.layout import SQUAD, StoredSplit, stored_split
from sot_paddle.distributed import say
from sot_paddle.tasks.squad import read_windows
from sot_paddle.tasks.state_options import ExtractConfig
from sot_paddle.train.adapter_command import load_frozen
from sot_paddle.train.device import prepare_device

_SQUAD_FILES = {"train": "train_file", "dev": "predict_file"}


def extract_splits(config: ExtractConfig) -> None:
    """Store the splits that the options name."""
    prepare_device(dtype="float32", cpu=config.no_cuda)
    layouts, folder = _layouts(config), Path(config.output_dir)
    frozen = load_frozen(config)
    sources = {split: _source(config, frozen, split) for split in layouts}
    with hold(folder):
        for split, source in sources.items():
            layout, count, title = layouts[split], len(source), f"{config.task_name} {split}"
            if states.is_stored(folder, layout, config.dtype, source.origin):
                say(f"{title}: its {count:,} rows are there")
                continue
            layers, tokens, width = source.of_row
            needed = states.require_space(folder, (count, layers, tokens, width), config.dtype)
            say(
                f"{title}: {count:,} rows x {layers} states x {tokens} tokens x {width} in "
                f"{config.dtype}: {needed:.1f} GB"
            )
            states.extract(source, folder, layout, config.dtype, batch_size=config.batch_size)
            say(f"{folder / layout.states.file}: {count:,} rows")


def _layouts(config: ExtractConfig) -> dict[str, StoredSplit]:
    """The files of each split; refuses one that has none."""
    named = [name.strip() for name in config.splits.split(",") if name.strip()]
    if config.squad:
        with_file = [name for name, flag in _SQUAD_FILES.items() if getattr(config, flag)]
        named = named or with_file
        if not named:
            raise ValueError("SQuAD needs --train_file, --predict_file or both")
        if missing := [name for name in named if name in _SQUAD_FILES and name not in with_file]:
            raise ValueError(f"SQuAD {missing[0]} needs --{_SQUAD_FILES[missing[0]]}")
    else:
        if not config.data_dir:
            raise ValueError(f"{config.task_name} needs --data_dir, the folder of its files")
        named = named or ["train", *get_task(config.task_name).dev_splits]
    return {name: stored_split(config.task_name, name) for name in named}


def _source(config: ExtractConfig, frozen: states.FrozenModel, split: str) -> states.LiveStates:
    if not config.squad:
        source, _ = states.glue_states(
            frozen, config.data_dir, config.task_name, split, config.rows
        )
        return source
    file = getattr(config, _SQUAD_FILES[split])
    _, features = read_windows(config, frozen.tokenizer, file)
    return frozen.states(features.tokens, SQUAD, split)
