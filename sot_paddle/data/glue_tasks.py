"""The nine GLUE tasks as data: files, columns, labels, metrics and prediction files.

No logic beyond look-ups lives here; :mod:`sot_paddle.data.glue` reads and writes the files.

REF: label order and the columns used are those of the GLUE processors of transformers 2.2.1, on
which the text release builds; columns are found by name in the header instead of by position.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

OWN = "own"
"""Task name of a user's own tables."""

SPLITS = {"train": "train.tsv", "dev": "dev.tsv", "test": "test.tsv"}
"""Split -> its file; those whose name begins with ``test`` have no labels."""


@dataclass(frozen=True)
class Task:
    """One classification or regression task over sentences or sentence pairs."""

    name: str
    title: str  # official spelling, also the name of the official folder
    text: tuple[str, ...]  # its columns
    labels: tuple[str, ...]  # class names in class-index order; empty for regression
    label: str = "label"  # its column
    metrics: tuple[str, ...] = ("acc",)  # the last selects the best checkpoint
    splits: Mapping[str, str] = field(default_factory=SPLITS.copy, repr=False)
    columns: tuple[str, ...] = ()  # names, of files with labels that have no header line
    prediction_files: Mapping[str, str] = field(default_factory=dict, repr=False)  # or TITLE.tsv
    index: str = "index"  # column of the row number; files without it are numbered from 0
    skip_malformed: bool = False  # skip rows with a wrong number of columns, as the original does
    score_range: tuple[float, float] | None = None

    @property
    def is_regression(self) -> bool:
        """Whether the label is a score instead of a class."""
        return not self.labels

    @property
    def num_outputs(self) -> int:
        """Width of the classifier: the number of classes, 1 for regression."""
        return len(self.labels) or 1

    @property
    def dev_splits(self) -> tuple[str, ...]:
        """Names of the development splits (two for MNLI)."""
        return tuple(name for name in self.splits if name.startswith("dev"))

    @property
    def test_splits(self) -> tuple[str, ...]:
        """Names of the test splits (MNLI has two, and the diagnostic set)."""
        return tuple(name for name in self.splits if name.startswith("test"))


BINARY = ("0", "1")
ENTAILMENT = ("entailment", "not_entailment")
ACCURACY_F1 = ("acc", "f1", "acc_and_f1")
CORRELATIONS = ("pearson", "spearmanr", "corr")
PAIR = ("sentence1", "sentence2")

_MNLI_SPLITS = {
    "train": "train.tsv",
    "dev_matched": "dev_matched.tsv",
    "dev_mismatched": "dev_mismatched.tsv",
    "test_matched": "test_matched.tsv",
    "test_mismatched": "test_mismatched.tsv",
    # AX, which a model of MNLI predicts (specs.md E.4): index, sentence1, sentence2
    "test_diagnostic": "diagnostic.tsv",
}
_MNLI_PREDICTIONS = {
    "test_matched": "MNLI-m.tsv",
    "test_mismatched": "MNLI-mm.tsv",
    "test_diagnostic": "AX.tsv",
}

_TASKS = (
    Task(
        "cola",
        "CoLA",
        ("sentence",),
        BINARY,
        metrics=("mcc",),
        columns=("source", "label", "star", "sentence"),
    ),
    Task("sst-2", "SST-2", ("sentence",), BINARY),
    Task("mrpc", "MRPC", ("#1 String", "#2 String"), BINARY, "Quality", ACCURACY_F1),
    Task("sts-b", "STS-B", PAIR, (), "score", CORRELATIONS, score_range=(0.0, 5.0)),
    Task(
        "qqp",
        "QQP",
        ("question1", "question2"),
        BINARY,
        "is_duplicate",
        ACCURACY_F1,
        index="id",
        skip_malformed=True,
    ),
    Task(
        "mnli",
        "MNLI",
        PAIR,
        ("contradiction", "entailment", "neutral"),
        "gold_label",
        splits=_MNLI_SPLITS,
        prediction_files=_MNLI_PREDICTIONS,
    ),
    Task("qnli", "QNLI", ("question", "sentence"), ENTAILMENT),
    Task("rte", "RTE", PAIR, ENTAILMENT),
    Task("wnli", "WNLI", PAIR, BINARY),
)
TASKS: Mapping[str, Task] = {task.name: task for task in _TASKS}
"""The nine tasks by canonical name."""


def get_task(name: str | Task) -> Task:
    """Look a task up by name, whatever its letter case and dashes (``RTE``, ``sst2``, ``STS-B``).

    A :class:`Task` is returned as it is; an unknown name is a ValueError.
    """
    if isinstance(name, Task):
        return name
    squeezed = {key.replace("-", ""): task for key, task in TASKS.items()}
    key = name.lower().replace("-", "").replace("_", "")
    if key not in squeezed:
        titles = ", ".join(task.title for task in TASKS.values())
        raise ValueError(f"unknown GLUE task {name!r}; expected one of: {titles}")
    return squeezed[key]


def resolve_split(task: Task, split: str) -> str:
    """The task's own name of ``split``: for MNLI, ``dev`` means ``dev_matched``.

    Raises:
        ValueError: the task has no such split.
    """
    name = split if split in task.splits else f"{split}_matched"
    if name not in task.splits:
        raise ValueError(
            f"{task.title} has no split {split!r}; expected one of: {', '.join(task.splits)}"
        )
    return name
