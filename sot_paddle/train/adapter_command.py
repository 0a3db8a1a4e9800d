"""The command that trains on hidden states (``tools/train_adapter.py``)."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from paddle import nn
from paddle.optimizer import Optimizer
from paddle.optimizer.lr import LRScheduler

from sot_paddle import distributed
from sot_paddle.backbones.families import TEXT_BACKBONES
from sot_paddle.data.squad import SpanFeatures
from sot_paddle.data.stored.layout import SQUAD, original_task, stored_split
from sot_paddle.data.stored.states import FrozenModel, StateReader, glue_states
from sot_paddle.data.tokenizers import FAMILIES
from sot_paddle.distributed import say
from sot_paddle.heads import adapter_pooler
from sot_paddle.tasks.glue import GlueTask, dev_splits, test_splits
from sot_paddle.tasks.squad import SquadTask, load_squad
from sot_paddle.tasks.state_options import LIVE, RecipeOptions, StateRows, StateTrainConfig
from sot_paddle.tasks.states import ProbedGlueTask, ProbedSquadTask, StateSplit
from sot_paddle.tasks.task import Task
from sot_paddle.train import pretrained
from sot_paddle.train.feeding import Pace
from sot_paddle.train.optimizer import decayed_names
from sot_paddle.train.run import train
from sot_paddle.train.run_folder import config_file, open_folder
from sot_paddle.train.text_command import optimizer, prepare_text_device, text_setup

_MODELS: Mapping[tuple[str, bool], Callable[[adapter_pooler.AdapterConfig, int], nn.Layer]] = {
    ("adapter", False): adapter_pooler.AdapterClassifier,
    ("adapter", True): lambda sizes, _: adapter_pooler.AdapterSpans(sizes),
    ("probes", False): adapter_pooler.LayerClassifiers,
    ("probes", True): lambda sizes, _: adapter_pooler.LayerSpans(sizes),
}
"""(``--model``, question answering) -> the model."""


def run_config(config: StateTrainConfig) -> dict[str, Any]:
    """Run the command; see `sot_paddle.train.run.train`."""
    prepare_text_device(config)
    sources = {"--states": None if config.states == LIVE else Path(config.states)}
    if config.model_name_or_path:
        sources |= pretrained.sources(config)
    with open_folder(config, sources) as resume_from:
        frozen = load_frozen(config) if config.states == LIVE else None
        task = (_squad if config.squad else _glue)(config, frozen)
        decay = every_name if config.squad else decayed_names
        make_optimizer = functools.partial(optimizer_of_full_batches, decay=decay)
        return train(text_setup(config, task, StateModel(config), make_optimizer), resume_from)


def every_name(model: nn.Layer) -> set[str]:
    """Names of all parameters: the original's adapter for SQuAD has no exclusion (C.4)."""
    return {name for name, _ in model.named_parameters()}


@dataclass(frozen=True)
class StateModel:
    """A model on hidden states; see :class:`sot_paddle.train.setup.ModelSource`."""

    config: StateTrainConfig
    origin = "the start"

    def build(self, task: Task) -> nn.Layer:
        """The model that the options and the sizes of the hidden states describe."""
        config, splits = self.config, (task.train, *task.dev.values(), *task.test.values())
        sizes = {split.source.of_row for split in splits if split is not None}
        if len(sizes) > 1:
            raise ValueError(f"the splits have hidden states of different sizes: {sorted(sizes)}")
        ((layers, tokens, features),) = sizes
        if config.max_seq_length not in (None, tokens):
            say(f"--max_seq_length has no effect: rows of {config.states} have {tokens} tokens")
        options = adapter_pooler.AdapterConfig(layers, features, tokens, config.adapter_dim)
        return _MODELS[config.model, config.squad](options, task.num_outputs)

    def load(self, model: nn.Layer) -> Sequence[str]:
        """Nothing to load: every tensor is fresh."""
        return list(model.state_dict())

    def about(self, model: nn.Layer) -> str:
        """The sizes of the hidden states."""
        sizes = model.config
        width = f", width {sizes.width}" if self.config.model == "adapter" else ""
        tokens = f"{sizes.seq_length} tokens x {sizes.hidden_size}"
        return f"on {sizes.num_layers} hidden states of {tokens}{width}"

    def files(self, model: nn.Layer, task: Task) -> Mapping[str, bytes]:
        """What rebuilds the model, and the names of its classes."""
        content = {
            "sot_model": model.name,
            "task": task.title,
            "id2label": {str(index): label for index, label in enumerate(task.classes)},
            **dataclasses.asdict(model.config),
        }
        return config_file(content)


def schedule_steps(config: RecipeOptions, pace: Pace, steps: int) -> int:
    """Optimizer steps after which the rate is zero.

    QUIRK: the original counts full batches only, so that the last batch of a run, when it is not
    full, is trained with a rate of zero.
    """
    if config.max_steps > 0:
        return steps
    size = config.per_gpu_train_batch_size * distributed.world_size()
    full = pace.rows // (size * pace.accumulation)
    total = int(full * config.num_train_epochs)
    if total < 1:
        raise ValueError(
            f"{pace.rows} rows make no full batch of {size} x {pace.accumulation}: "
            "lower --per_gpu_train_batch_size"
        )
    return total


def optimizer_of_full_batches(
    config: RecipeOptions,
    model: nn.Layer,
    pace: Pace,
    steps: int,
    decay: Callable[[nn.Layer], set[str]] = decayed_names,
) -> tuple[Optimizer, LRScheduler]:
    """The published recipe (C.4): :func:`optimizer` with the steps of :func:`schedule_steps`."""
    return optimizer(config, model, pace, schedule_steps(config, pace, steps), decay)


def load_frozen(options: StateRows) -> FrozenModel:
    """Read a checkpoint: a Hugging Face folder, or a folder that tools/train_glue.py wrote."""
    trained = pretrained.find(options)
    model = trained.build(2, {**options.encoder_options, **options.head_options})
    loaded = len(model.state_dict()) - len(pretrained.load(model, trained))
    model.eval()
    for parameter in model.parameters():
        parameter.stop_gradient = True
    say(f"encoder: {loaded} tensors from {trained.origin}")
    return FrozenModel(model, trained.tokenizer(options.length, tie_break="fast"))


def _glue(config: StateTrainConfig, frozen: FrozenModel | None) -> GlueTask:
    table = original_task(config.task_name, config.rows)
    if config.do_predict and frozen is None:
        raise ValueError("do_predict of a GLUE task needs --states live: no test is stored")
    names = []
    if config.do_eval and frozen is not None:
        names = dev_splits(config.data_dir, table)
    elif config.do_eval:
        first, *others = table.dev_splits  # the first one has to be there
        stored = {name: stored_split(table.name, name).paths(config.states)[-1] for name in others}
        names = [first, *(name for name, path in stored.items() if path.is_file())]
    tests = test_splits(config.data_dir, table) if config.do_predict else []
    return (ProbedGlueTask if config.model == "probes" else GlueTask)(
        table,
        config.per_gpu_train_batch_size,
        train=_glue_split(config, frozen, "train") if config.do_train else None,
        dev={name: _glue_split(config, frozen, name) for name in names},
        test={name: _glue_split(config, frozen, name) for name in tests},
    )


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
    size = config.per_gpu_eval_batch_size
    kind = ProbedSquadTask if config.model == "probes" else SquadTask

    def live(split: str, features: SpanFeatures) -> StateSplit:
        return StateSplit(frozen.states(features.tokens, SQUAD, split), size)

    if frozen is not None:
        return load_squad(kind, config, frozen.tokenizer, live)
    first = StateReader(config.states, stored_split(SQUAD, "train" if config.do_train else "dev"))
    name = config.tokenizer_name or config.model_name_or_path
    if not name or not Path(name).exists():
        raise ValueError(f"{name!r} holds no vocabulary: give --tokenizer_name (its folder)")
    family = FAMILIES[TEXT_BACKBONES[config.model_type].tokenizer]
    tokenizer = family.build(Path(name), max_length=first.of_row[1], tie_break="fast")

    def stored(split: str, features: SpanFeatures) -> StateSplit:
        windows = StateSplit(StateReader(config.states, stored_split(SQUAD, split)), size)
        if not np.array_equal(windows.labels, features.tokens.labels):
            raise ValueError(
                f"the {len(windows):,} stored rows of {config.states} are not the "
                f"{len(features):,} windows of the questions: give the file, vocabulary and "
                "stride that they were made from"
            )
        say(f"{split}: {len(windows):,} stored windows of {config.states}")
        return windows

    return load_squad(kind, config, tokenizer, stored)
