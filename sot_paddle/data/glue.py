"""GLUE's official folders and a user's own TSV files as examples, and files for its server.

Files are read as they are distributed: quoting off (the texts hold unbalanced quotes), byte-order
marks, CRLF and a missing final newline accepted, CoLA without a header.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sot_paddle.atomic import write_atomically
from sot_paddle.config import some
from sot_paddle.data.batches import TokenFeatures
from sot_paddle.data.glue_tasks import CORRELATIONS, OWN, PAIR, Task, get_task, resolve_split
from sot_paddle.data.subword import SubwordTokenizer
from sot_paddle.reading import read_text

_LOG = logging.getLogger(__name__)
_LARGEST_SCORE = 3.4e38  # about that of float32


@dataclass(frozen=True, slots=True)
class Example:
    """One row of a task."""

    index: int  # the file's own row number where it has one, else the position from 0
    text_a: str
    text_b: str | None
    label: int | float | None  # class index, score for regression, None where withheld


def read_split(data_dir: str | Path, task: str | Task, split: str) -> list[Example]:
    """Read one split of a task: the examples in the file's order, at least one.

    Args:
        data_dir: the task's own folder (``$GLUE_DIR/RTE``), as in the original command.
        split: ``train``, ``dev``, ``test``; MNLI also ``dev_matched``, ``dev_mismatched``,
            ``test_matched``, ``test_mismatched`` (``dev`` and ``test`` mean matched) and
            ``test_diagnostic`` (AX).

    Raises:
        ValueError: wrong folder, empty or truncated file, missing column, row with a wrong
            number of columns, unknown label; names file and line. Rows of QQP with a wrong number
            of columns are skipped with one logged line instead, as the original skips them.

    Source: specs.md B.2; ``data/README.md``, "Reading them safely".
    """
    task = get_task(task)
    path, has_labels = _locate(Path(data_dir), task, split), not split.startswith("test")
    rows = read_table(
        path,
        required=(*task.text, task.label) if has_labels else task.text,
        columns=(task.columns or None) if has_labels else None,
        skip_malformed=task.skip_malformed,
    )
    examples = []
    for position, (number, row) in enumerate(rows):
        try:
            index = int(row.get(task.index, position))
            label = _label(task, row[task.label]) if has_labels else None
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}") from None
        texts = [row[name] for name in task.text]
        examples.append(Example(index, texts[0], texts[1] if len(texts) == 2 else None, label))
    return examples


def tokenize_examples(
    examples: Sequence[Example], task: Task, tokenizer: SubwordTokenizer
) -> TokenFeatures:
    """Tokenize examples of a task: a row each, in their order.

    Labels are int64 classes or float32 scores, None where the examples have none.
    """
    pairs = None if len(task.text) == 1 else [example.text_b or "" for example in examples]
    features = tokenizer.tokenize([example.text_a for example in examples], pairs)
    labels = [example.label for example in examples]
    return features.with_targets(
        [example.index for example in examples],
        None if labels[0] is None else labels,
        np.float32 if task.is_regression else np.int64,
    )


def _locate(folder: Path, task: Task, split: str) -> Path:
    """The file of the split; a helpful refusal when it is not there."""
    name = resolve_split(task, split)
    path = folder / task.splits[name]
    if path.is_file():
        return path
    content = "is no folder"
    if folder.is_dir():
        content = f"holds {some(sorted(path.name for path in folder.iterdir())) or 'nothing'}"
    raise ValueError(
        f"{task.title} {name}: expected {path.name} in {folder}, which {content}; give the folder "
        "that holds the task's files"
    )


def _label(task: Task, cell: str) -> int | float:
    if not task.is_regression:
        if cell in task.labels:
            return task.labels.index(cell)
        raise ValueError(f"expected the label {' or '.join(task.labels)}, found {cell!r}")
    low, high = task.score_range or (-_LARGEST_SCORE, _LARGEST_SCORE)
    try:
        score = float(cell)
    except ValueError:
        score = math.nan
    if not low <= score <= high:
        raise ValueError(f"expected a score from {low:g} to {high:g}, found {cell!r}")
    return score


def read_table(
    path: Path,
    *,
    required: tuple[str, ...],
    columns: tuple[str, ...] | None = None,
    skip_malformed: bool = False,
) -> list[tuple[int, dict[str, str]]]:
    """Read a tab-separated file, quoting off; a ValueError names file and line.

    Returns the number of each row's line, from 1, and its cells by column; at least one row.

    Args:
        columns: the column names of a file without a header line; None reads the first line.
        skip_malformed: skip rows with a wrong number of columns and log one line about them; a
            last line that is too short is refused all the same.
    """
    lines = decoded_lines(path)
    header = list(columns) if columns else lines[0].split("\t")
    missing = [name for name in required if name not in header]
    if missing:
        raise ValueError(
            f"{path}, line 1: expected a header with the columns {', '.join(required)}, with tabs "
            f"between; missing {', '.join(missing)}, found {', '.join(map(repr, header))[:200]}"
        )
    if len(set(header)) < len(header):
        raise ValueError(f"{path}, line 1: expected different column names, found {header}")
    first = 0 if columns else 1
    rows, skipped = [], []
    for number, line in enumerate(lines[first:], start=first + 1):
        cells = line.split("\t")
        if len(cells) == len(header):
            rows.append((number, dict(zip(header, cells, strict=True))))
            continue
        is_cut = number == len(lines) and len(cells) < len(header)
        if is_cut or not skip_malformed:
            advice = "the file looks truncated: fetch it again" if is_cut else "check its tabs"
            raise ValueError(
                f"{path}, line {number}: expected {len(header)} tab-separated columns "
                f"({', '.join(header)}), found {len(cells)} in {line[:60]!r}; {advice}"
            )
        skipped.append(number)
    if not rows:
        raise ValueError(f"{path} holds a header and no usable row; fetch the file again")
    if skipped:
        message = "%s: skipped %d of %d rows without exactly %d columns (the first is line %d)"
        _LOG.warning(message, path, len(skipped), len(lines) - first, len(header), skipped[0])
    return rows


def decoded_lines(path: Path) -> list[str]:
    """The lines of a UTF-8 file.

    A byte-order mark and CRs before a newline are dropped, empty lines at the end as well.

    Raises:
        ValueError: the file is empty or not UTF-8 (with the line).
    """
    try:
        text = read_text(path, encoding="utf-8-sig")
    except ValueError as error:
        raise ValueError(f"{error}; expected tab-separated rows in UTF-8") from None
    if not text.strip():
        raise ValueError(f"{path} is empty; expected tab-separated rows: fetch the file again")
    # only "\n" ends a row: the texts may hold other characters that str.splitlines splits at
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    while not lines[-1]:
        lines.pop()
    return lines


def prediction_path(folder: str | Path, task: str | Task, split: str = "test") -> Path:
    """Where predictions go: ``RTE.tsv``, ``MNLI-m.tsv``."""
    task = get_task(task)
    name = resolve_split(task, split)
    return Path(folder) / task.prediction_files.get(name, f"{task.title}.tsv")


def write_predictions(
    folder: str | Path,
    task: str | Task,
    indices: Sequence[int] | np.ndarray,
    predictions: np.ndarray,
    split: str = "test",
) -> Path:
    """Write ``index<TAB>prediction`` rows atomically; the folder is made when it is missing.

    Classes are written as the task's label words (``entailment``), CoLA and the like as 0 and
    1, STS-B as a score clipped to [0, 5] with three decimals, an own table's score with all the
    digits of a float32.

    Args:
        indices: (N,) row numbers of the test file (``Example.index``).
        predictions: (N,) class indices, or finite scores for a regression task.
    """
    task = get_task(task)
    if task.is_regression:
        scores = predictions.astype(np.float64)
        if task.score_range is None:  # of any size
            cells = [f"{score:.9g}" for score in scores]
        else:
            cells = [f"{score:.3f}" for score in scores.clip(*task.score_range)]
    else:
        cells = [task.labels[value] for value in predictions]
    rows = [f"{number}\t{cell}" for number, cell in zip(indices, cells, strict=True)]
    content = "index\tprediction\n" + "\n".join(rows) + "\n"
    return write_atomically(prediction_path(folder, task, split), content.encode())


MAX_CLASSES = 1000  # more than this and the label column surely holds something else
TEXTS = (PAIR, ("sentence",), ("text",))  # names of the text columns; the first there are taken
MISSING = ("nan", "NaN", "None", "<NA>", "NaT")  # what Python and pandas write for no label


def own_task(data_dir: str | Path, *, regression: bool = False) -> Task:
    """Describe the files ``train.tsv``, ``dev.tsv`` and ``test.tsv`` of a folder as a task.

    Each has a header with ``sentence`` (or ``text``), or ``sentence1`` and ``sentence2``, and
    ``label`` (not in the test file, where it is not read); further columns are ignored, except that
    ``index`` numbers the rows. Quoting is off, as in GLUE.

    ``train.tsv`` decides columns and labels, whose order is that of the class indices (numerical
    when all are whole numbers). Metrics are accuracy, or Pearson and Spearman correlation and
    their mean.

    Raises:
        ValueError: no usable ``train.tsv``, no text column, a row without a label, or fewer than
            two classes.
    """
    path = Path(data_dir) / "train.tsv"
    _locate(Path(data_dir), table_task(("sentence",)), "train")  # refuses a wrong folder
    rows = read_table(path, required=("label",))
    columns = rows[0][1]
    present = [names for names in TEXTS if set(names) <= columns.keys()]
    if not present:
        raise ValueError(
            f"{path}, line 1: expected the column sentence or text, or sentence1 and sentence2; "
            f"found {', '.join(map(repr, columns))}"
        )
    if regression:
        return table_task(present[0])
    for number, row in rows:
        label = row["label"]
        if label in MISSING or label != label.strip() or not label:
            raise ValueError(
                f"{path}, line {number}: expected a label without blanks around it, found "
                f"{label!r}; label the row or leave it out (pandas writes {', '.join(MISSING)} for "
                "a missing one)"
            )
    labels = sorted({row["label"] for _, row in rows})
    if not 2 <= len(labels) <= MAX_CLASSES:
        raise ValueError(
            f"{path}: expected 2 to {MAX_CLASSES} different labels, found {len(labels)}; labels "
            "that are scores are for train_glue.py --regression"
        )
    if all(label.removeprefix("-").isdecimal() for label in labels):
        labels.sort(key=int)
    return table_task(present[0], tuple(labels))


def table_task(
    text: tuple[str, ...], labels: tuple[str, ...] = (), *, title: str = "own table"
) -> Task:
    """A task beside GLUE's, of the columns of its text; without labels a regression."""
    return Task(
        name=OWN,
        title=title,
        text=text,
        labels=labels,
        metrics=("acc",) if labels else CORRELATIONS,
        prediction_files={"test": "predictions.tsv"},
    )
