"""The tasks on hidden states that the options describe, from files or from a frozen encoder."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np

from sot_paddle.backbones.families import TEXT_BACKBONES
from sot_paddle.data.errors import DataError
from sot_paddle.data.glue_tasks import Task as Table
from sot_paddle.data.stored.layout import original_task, stored_split
from sot_paddle.data.stored.live_states import FrozenModel, glue_states
from sot_paddle.data.stored.state_files import StateReader
from sot_paddle.data.subword import SubwordTokenizer
from sot_paddle.data.tokenizers import FAMILIES
from sot_paddle.distributed import say
from sot_paddle.tasks.glue import GlueTask, dev_splits, test_splits
from sot_paddle.tasks.squad import AskedSplit, SquadTask, load_squad, read_windows
from sot_paddle.tasks.state_options import LIVE, SQUAD, StateRows, StateTrainConfig
from sot_paddle.tasks.states import ProbedGlueTask, ProbedSquadTask, StateSplit
from sot_paddle.tasks.task import Task
from sot_paddle.tasks.text_options import CheckpointOptions
from sot_paddle.train import pretrained

Sizes = tuple[int, int, int]


def load_states(config: StateTrainConfig) -> tuple[Task, Sizes]:
    """Read what the options ask for.

    Returns:
        The task, and (L, T, F) of its hidden states.
    """
    frozen = load_frozen(config) if config.states == LIVE else None
    task = _squad(config, frozen) if config.squad else _glue(config, frozen)
    splits = [task.train, *task.dev.values(), *task.test.values()]
    sources = [_of(split).source for split in splits if split is not None]
    sizes = {source.of_row for source in sources}
    if len(sizes) > 1:
        raise DataError(f"the splits have hidden states of different sizes: {sorted(sizes)}")
    of_row = sizes.pop()
    if config.max_seq_length not in (None, of_row[1]):
        say(f"--max_seq_length has no effect: rows of {config.states} have {of_row[1]} tokens")
    return task, of_row


def load_frozen(options: StateRows) -> FrozenModel:
    """Read a checkpoint: a Hugging Face folder, or a folder that tools/train_glue.py wrote."""
    trained = pretrained.find(options)
    model = trained.build(2, {**options.encoder_options, **options.head_options})
    loaded, _ = pretrained.load(model, trained)
    model.eval()
    for parameter in model.parameters():
        parameter.stop_gradient = True
    family = FAMILIES[model.backbone.tokenizer]
    tokenizer = family.from_files(trained.vocabulary, max_length=options.length, tie_break="fast")
    say(f"encoder: {loaded} tensors from {trained.origin}")
    return FrozenModel(model, tokenizer, options.length)


def read_tokenizer(options: CheckpointOptions, max_length: int) -> SubwordTokenizer:
    """The tokenizer alone, for states that are stored."""
    name = options.tokenizer_name or options.model_name_or_path
    if not name or not Path(name).exists():
        raise ValueError(f"{name!r} holds no vocabulary: give --tokenizer_name (its folder)")
    family = FAMILIES[TEXT_BACKBONES[options.model_type].tokenizer]
    return family.build(Path(name), max_length=max_length, tie_break="fast")


def _of(split: StateSplit | AskedSplit) -> StateSplit:
    return split.windows if isinstance(split, AskedSplit) else split


def _glue(config: StateTrainConfig, frozen: FrozenModel | None) -> GlueTask:
    table = original_task(config.task_name, config.rows)
    if config.do_predict and frozen is None:
        raise ValueError("do_predict of a GLUE task needs --states live: no test is stored")
    names = _dev_names(config, frozen, table) if config.do_eval else []
    tests = test_splits(config.data_dir, table) if config.do_predict else []
    return (ProbedGlueTask if config.model == "probes" else GlueTask)(
        table,
        config.per_gpu_train_batch_size,
        train=_glue_split(config, frozen, "train") if config.do_train else None,
        dev={name: _glue_split(config, frozen, name) for name in names},
        test={name: _glue_split(config, frozen, name) for name in tests},
    )


def _dev_names(config: StateTrainConfig, frozen: FrozenModel | None, table: Table) -> list[str]:
    """The development splits that are there; the first has to be."""
    if frozen is not None:
        return dev_splits(config.data_dir, table)
    first, *others = table.dev_splits
    stored = {name: stored_split(table.name, name).paths(config.states)[-1] for name in others}
    return [first, *(name for name, path in stored.items() if path.is_file())]


def _glue_split(config: StateTrainConfig, frozen: FrozenModel | None, name: str) -> StateSplit:
    size = config.per_gpu_eval_batch_size
    if frozen is None:
        reader = StateReader(config.states, stored_split(config.task_name, name))
        say(f"{name}: {len(reader):,} stored rows of {config.states}")
        return StateSplit(reader, size)
    if not config.data_dir:
        raise ValueError(f"{config.task_name} needs --data_dir, the folder of its files")
    source, indices = glue_states(frozen, config.data_dir, config.task_name, name, config.rows)
    return StateSplit(source, size, indices)


def _squad(config: StateTrainConfig, frozen: FrozenModel | None) -> SquadTask:
    kind = ProbedSquadTask if config.model == "probes" else SquadTask
    return load_squad(kind, config, functools.partial(_asked, config, frozen))


def _asked(
    config: StateTrainConfig, frozen: FrozenModel | None, split: str, file: str
) -> AskedSplit:
    size = config.per_gpu_eval_batch_size
    if frozen is not None:
        labelled = split == "train" or config.do_eval
        questions, features = read_windows(
            config, frozen.tokenizer, file, frozen.max_length, labelled=labelled
        )
        return AskedSplit(questions, features, StateSplit(frozen.windows(features, split), size))
    reader = StateReader(config.states, stored_split(SQUAD, split))
    tokens = reader.of_row[1]
    questions, features = read_windows(config, read_tokenizer(config, tokens), file, tokens)
    windows = StateSplit(reader, size)
    if not np.array_equal(windows.labels, features.tokens.labels):
        raise DataError(
            f"the {len(reader):,} stored rows of {config.states} are not the {len(features):,} "
            f"windows of {file}: give the file, vocabulary and stride that they were made from"
        )
    say(f"{split}: {len(reader):,} stored windows of {len(questions):,} questions")
    return AskedSplit(questions, features, windows)
