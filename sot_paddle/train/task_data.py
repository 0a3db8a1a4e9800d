"""The splits of a task, tokenized and ready to be fed; what is absent is left out or refused."""

from __future__ import annotations

import functools
import hashlib
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sot_paddle import distributed
from sot_paddle.data.batching import EpochOrder
from sot_paddle.data.cache import cached_split, default_cache_dir
from sot_paddle.data.errors import DataError
from sot_paddle.data.glue import available_splits
from sot_paddle.data.glue_tasks import Task, get_task
from sot_paddle.data.own_table import own_task
from sot_paddle.data.paddle_dataset import PadCollator
from sot_paddle.data.token_features import TokenFeatures
from sot_paddle.data.tokenization import WordPieceTokenizer
from sot_paddle.train.arguments import OWN, TrainConfig
from sot_paddle.train.feeding import EpochBatches


@dataclass(frozen=True)
class TaskData:
    """The splits that a run uses.

    Attributes:
        task: what they are.
        train: None when the run does not train.
        dev: development splits by name, the first decides; {} when the run does not evaluate.
        test: test splits that are there.
        collate: rows of a FeatureDataset to a padded batch.
        vocab_size: largest token id + 1.
    """

    task: Task
    train: TokenFeatures | None
    dev: Mapping[str, TokenFeatures]
    test: Mapping[str, TokenFeatures]
    collate: PadCollator
    vocab_size: int

    @property
    def metric_task(self) -> str:
        """Name under which the task's metrics are computed."""
        if self.task.name != OWN:
            return self.task.title
        return "STS-B" if self.task.is_regression else "RTE"


def load_task_data(config: TrainConfig, vocabulary: Mapping[str, bytes]) -> TaskData:
    """Read and tokenize what the options ask for; the first process fills the cache.

    Args:
        config: task, folder, lengths and switches.
        vocabulary: tokenizer files by name.

    Returns:
        The splits. Test splits are optional unless ``do_predict``; MNLI's mismatched set may be
        absent.

    Raises:
        DataError: a needed file is missing or broken.
    """
    task = _task(config)
    tokenizer = _tokenizer(config, vocabulary)
    present = available_splits(config.data_dir, task)
    dev = [name for name in task.dev_splits if name in present]
    if config.do_eval and task.dev_splits[0] not in dev:
        dev = [task.dev_splits[0]]  # reading it says what is missing
    test = [name for name in task.test_splits if name in present]
    if config.do_predict and not test:
        test = [task.test_splits[0]]
    wanted = (["train"] if config.do_train else []) + (dev if config.do_eval else []) + test
    if not wanted:
        raise ValueError("nothing to do: give --do_train, --do_eval or --do_predict")
    features: dict[str, TokenFeatures] = {}

    def read() -> None:
        for split in wanted:
            features[split] = _read(config, task, split, tokenizer)

    distributed.on_first_process(read)
    if not features:
        read()
    return TaskData(
        task=task,
        train=features.get("train"),
        dev={name: features[name] for name in dev if name in features},
        test={name: features[name] for name in test},
        collate=PadCollator(config.padding, config.max_seq_length, tokenizer.pad_id),
        vocab_size=tokenizer.vocab_size,
    )


def training_batches(config: TrainConfig, features: TokenFeatures, seed: int) -> EpochBatches:
    """The global batches of each epoch: shuffled by (seed, epoch), bucketed when padding is."""
    order = EpochOrder(
        n=len(features),
        batch_size=config.per_gpu_train_batch_size * distributed.world_size(),
        seed=seed,
        lengths=features.lengths if config.padding == "longest" else None,
    )
    return functools.lru_cache(maxsize=2)(lambda epoch: order.at_epoch(epoch).batches())


def evaluation_batches(config: TrainConfig, features: TokenFeatures) -> list[np.ndarray]:
    """Batches that cover a split once, sorted by length when padding is dynamic."""
    order = EpochOrder(
        n=len(features),
        batch_size=config.per_gpu_eval_batch_size,
        shuffle=False,
        lengths=features.lengths if config.padding == "longest" else None,
    )
    return order.batches()


def fingerprint(features: TokenFeatures | None) -> str:
    """Hash of tokens and labels, "" for no data: what a resumed run must find again."""
    if features is None:
        return ""
    digest = hashlib.sha256()
    for name, array in sorted(features.arrays().items()):
        digest.update(f"{name} {array.dtype.str} {array.shape} ".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:32]


def _task(config: TrainConfig) -> Task:
    if config.task_name == OWN:
        return own_task(config.data_dir, regression=config.regression)
    return get_task(config.task_name)


def _tokenizer(config: TrainConfig, vocabulary: Mapping[str, bytes]) -> WordPieceTokenizer:
    """REF: the flag alone decides about lower-casing, also against a cased vocabulary (B.1)."""
    with tempfile.TemporaryDirectory(prefix="sot_paddle_vocabulary_") as folder:
        for name, content in vocabulary.items():
            (Path(folder) / name).write_bytes(content)
        try:
            return WordPieceTokenizer(
                folder, do_lower_case=config.do_lower_case, max_length=config.max_seq_length
            )
        except DataError as error:
            raise DataError(str(error).replace(folder, "the checkpoint's vocabulary")) from None


def _read(
    config: TrainConfig, task: Task, split: str, tokenizer: WordPieceTokenizer
) -> TokenFeatures:
    cache = Path(config.cache_dir) if config.cache_dir else default_cache_dir()
    if config.overwrite_cache and distributed.rank() == 0 and cache.is_dir():
        for entry in cache.glob(f"{task.name}-{split}-*.npz"):
            entry.unlink(missing_ok=True)
    return cached_split(config.data_dir, task, split, tokenizer, cache)
