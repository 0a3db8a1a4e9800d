"""Step ``data`` of whole texts: which tokens of a long one are kept, and batches of the layouts."""

from __future__ import annotations

import csv
import functools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from align.cases.both_sides import BothSides, Setting, stamps
from align.frameworks import on_paddle, on_torch
from align.record.arrays import Arrays
from sot_paddle.data.subword import kept_tokens
from sot_paddle.tasks.document_options import DocumentTrainConfig
from sot_paddle.tasks.documents import DocumentSplit, load_documents
from sot_paddle.tasks.glue import GlueTask
from sot_torch_ref.padding import pad_batch
from sot_torch_ref.train import documents

_NONE = -9
"""Stands where no token is kept."""

_CELL = 131_072
"""Letters of a cell that Python's reader of commas takes unasked."""

_PAD_ID = 3
"""Of padding: not 0, which an empty array holds."""


def truncation(setting: Setting) -> BothSides:
    """The kept positions for every length around every room, odd and even, and every rule."""
    given = [
        (length, room, rule)
        for room in (6, 7, 12)
        for length in (0, 1, room - 1, room, room + 1, room + 2, 2 * room, 2 * room + 1)
        for rule in (-2, -1, 0, 1, room // 2, room - 1)
    ]

    def kept(by: Callable, change: int = 0) -> Arrays:
        rows = [by(list(range(length)), room + change, rule) for length, room, rule in given]
        return {"kept": np.array([row + [_NONE] * (26 - len(row)) for row in rows])}

    swapped = {-2: -1, -1: -2}
    return BothSides(
        kept(kept_tokens),
        kept(documents.cut),
        {
            "head and tail exchanged": kept(
                lambda ids, room, rule: kept_tokens(ids, room, swapped.get(rule, rule))
            ),
            "halves that fill an odd room": kept(
                lambda ids, room, rule: kept_tokens(ids, room, rule or (room + 1) // 2)
            ),
            "room for one token more": kept(kept_tokens, 1),
            "cut at the room itself": kept(
                lambda ids, room, rule: (
                    ids[:-1] if len(ids) == room else kept_tokens(ids, room, rule)
                )
            ),
        },
        "the kept tokens",
        framework_free=True,
        note=f"{len(given)} texts; reference: the table of specs.md D.2",
    )


def batches(
    setting: Setting,
    *,
    layout: str,
    max_length: int,
    trunc_medium: int,
    split: str = "train",
    lower_case: bool = True,
) -> BothSides:
    """An epoch of padded batches of a data set in one of its layouts, cut as the original cuts.

    Args:
        setting: sentences and vocabulary.
        layout: key of `_WRITERS`.
        max_length: tokens of a row.
        trunc_medium: see `sot_paddle.data.subword.kept_tokens`.
        split: ``train``, ``dev``, or ``test`` without labels.
        lower_case: of the text.
    """
    texts = [" ".join(text.split()) or "." for text in setting.context.texts]

    def read_from(given: list[str], **more: int) -> tuple[GlueTask, DocumentSplit, Callable]:
        folder, options, read = _WRITERS[layout](setting.folder(), given, split)
        asked = {"data_dir": str(folder), "max_seq_length": max_length, **more}
        asked["do_lower_case"] = lower_case
        return *_task(setting, split, **asked, **options), read

    task, found, read = read_from(texts)
    told = task.table.text, task.table.label, task.table.labels
    cut = _cut(found, trunc_medium)
    order = [batch.tolist() for batch in cut.batches]

    def fed(by: DocumentSplit = cut, chosen: Sequence[Sequence[int]] = order) -> Arrays:
        made = list(by.load(chosen))
        stamp.append(on_paddle.stamp(made[0]["input_ids"]))
        arrays = _joined(made)
        again = _cut(found, trunc_medium).fingerprint == by.fingerprint != found.fingerprint
        return {
            **arrays,
            "dynamically padded": on_paddle.numpy(short["input_ids"]),
            "cut by the option": _tokens(by_option),
            "rows": by.indices,
            "columns and classes": np.asarray(told == _TOLD[layout]),
            "fingerprint tells the cut": np.asarray(again),
            "fingerprint tells the texts": np.array([one == found.fingerprint for one in others]),
        }

    stamp: list = []
    others = [read_from([*texts[:-1], texts[-1] + more])[1].fingerprint for more in ("", " on")]
    rows = read()
    brief = sorted(range(len(rows)), key=lambda position: len(rows[position][1]))[:3]
    (short,) = _cut(found, trunc_medium, "longest").load([brief])
    by_option = _joined(read_from(texts, trunc_medium=trunc_medium)[1].load(order))
    ours = fed()
    other = fed(_cut(found, -2 if trunc_medium != -2 else -1))
    reverse = fed(chosen=[batch[::-1] for batch in order])
    by_reference = setting.context.reference_tokenizer(do_lower_case=lower_case)
    reference = _reference(by_reference, rows, max_length, trunc_medium)
    shortest = [rows[i] for i in brief]
    narrow = _reference(by_reference, shortest, max_length, trunc_medium, padded=False)
    faults = {
        "the other end of a text": other,
        "rows of a batch in reverse": reverse,
        "padding not masked": ours | {"attention_mask": np.ones_like(ours["attention_mask"])},
    }
    if split == "test":
        del reference["labels"]
        faults["labels where none are given"] = ours | {"labels": ours["rows"]}
    else:
        faults["labels of the next row"] = ours | {"labels": np.roll(ours["labels"], 1)}
    return BothSides(
        ours,
        {
            **{name: tensor.numpy() for name, tensor in reference.items()},
            "dynamically padded": narrow["input_ids"].numpy(),
            "cut by the option": _tokens({n: tensor.numpy() for n, tensor in reference.items()}),
            "rows": np.arange(len(rows)),
            "columns and classes": np.asarray(True),
            "fingerprint tells the cut": np.asarray(True),
            "fingerprint tells the texts": np.array([True, False]),
        },
        faults,
        "the batches",
        note=f"{len(texts)} texts; reference: files read whole, transformers' slow tokenizer",
        stamps=stamps(stamp[0], on_torch.stamp(reference["input_ids"])),
    )


def _task(setting: Setting, split: str, **options: Any) -> tuple[GlueTask, DocumentSplit]:
    """A task and its split as the command makes them; texts are cut at the head."""
    asked = {"train": "do_train", "dev": "do_eval", "test": "do_predict"}[split]
    config = DocumentTrainConfig(
        model_name_or_path="m",
        output_dir="o",
        per_gpu_eval_batch_size=7,
        **{asked: True},
        **options,
    )
    vocabulary = {"vocab.txt": (setting.context.vocabulary / "vocab.txt").read_bytes()}
    task = load_documents(config, vocabulary)
    return task, {"train": task.train, **task.dev, **task.test}[split]


def _cut(split: DocumentSplit, rule: int, padding: str = "max_length") -> DocumentSplit:
    """The same rows, cut by another rule; padding has another id and goes as far as it says."""
    tokenizer = split._tokenizer.truncating(rule)
    tokenizer.pad_id = _PAD_ID
    return DocumentSplit(split._rows, tokenizer, padding, 7)


def _tokens(batch: Mapping[str, np.ndarray]) -> np.ndarray:
    """Token ids, 0 for padding."""
    return batch["input_ids"] * batch["attention_mask"]


def _joined(batches: Iterable[Mapping[str, Any]]) -> Arrays:
    """The batches of a loader as one, in arrays."""
    parts = [{name: on_paddle.numpy(t) for name, t in one.items()} for one in batches]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _reference(
    tokenizer: Any,
    rows: list[tuple[int, str]],
    max_length: int,
    trunc_medium: int,
    *,
    padded: bool = True,
) -> dict[str, torch.Tensor]:
    kept = []
    for _, text in rows:
        tokens = tokenizer.convert_tokens_to_ids(tokenizer.tokenize(text))
        cut = documents.cut(tokens, max_length - 2, trunc_medium)
        kept.append([tokenizer.cls_token_id, *cut, tokenizer.sep_token_id])
    labels = torch.tensor([label for label, _ in rows])
    length = max_length if padded else None
    return pad_batch(kept, [0] * len(kept), _PAD_ID, length) | {"labels": labels}


Written = tuple[Path, Mapping[str, Any], Callable[[], list[tuple[int, str]]]]
"""The folder, our options of the data, and the reference's reader."""


def _tables_beside(folder: Path) -> None:
    """Tables of D.2's form, which give way to the files as they are distributed."""
    for name in ("train.csv", "test.csv"):
        (folder / name).write_text("0\tanother text\n", encoding="utf-8")


def _imdb(folder: Path, texts: list[str], split: str) -> Written:
    root = folder / {"train": "train", "dev": "test"}[split]
    for part in ("neg", "pos"):
        (root / part).mkdir(parents=True)
    for index, text in enumerate(texts):
        path = root / ("neg", "pos")[index % 2] / f"{index}_{index % 10}.txt"
        path.write_text(text, encoding="utf-8")
    _tables_beside(folder)
    return folder, {"task_name": "IMDB"}, lambda: documents.imdb_texts(root)


def _trec(folder: Path, texts: list[str], split: str) -> Written:
    path = folder / {"train": "train_5500.label", "dev": "TREC_10.label"}[split]
    kinds = documents.TREC_LABELS
    lines = [f"{kinds[index % 6]}:detail {text}" for index, text in enumerate(texts)]
    path.write_bytes(("\n".join(lines) + "\n\n").encode("latin-1", "replace"))
    _tables_beside(folder)
    return folder, {"task_name": "TREC"}, lambda: documents.trec_texts(path)


def _yahoo(folder: Path, texts: list[str], split: str) -> Written:
    path = folder / {"train": "train.csv", "dev": "test.csv"}[split]
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, quoting=csv.QUOTE_ALL, lineterminator="\n")
        for index, text in enumerate(texts):
            more = (texts[-index], "", f'"quoted"\nand {text}')[index % 3]
            writer.writerow([index % 10 + 1, text, more, ""])
    return folder, {"task_name": "Yahoo Answers"}, lambda: documents.yahoo_texts(path)


def _tabs(task: str, classes: int, folder: Path, texts: list[str], split: str) -> Written:
    path = folder / {"train": "train.csv", "dev": "test.csv"}[split]
    lines = [f"{index % classes}\t{text}" for index, text in enumerate(texts)]
    lines[-2] += ' "left open'  # quotes are letters here: the next line is a row of its own
    path.write_text("\ufeff" + "\n".join(lines), encoding="utf-8", newline="")
    return folder, {"task_name": task}, lambda: _tab_rows(path)


def _tab_rows(path: Path) -> list[tuple[int, str]]:
    bare = path.with_suffix(".bare")
    bare.write_text(path.read_text(encoding="utf-8-sig"), encoding="utf-8")
    return documents.tab_texts(bare)


def _own_commas(folder: Path, texts: list[str], split: str) -> Written:
    """Quoted commas with a header; the classes are in order."""
    csv.field_size_limit(_CELL)  # whatever another case has left
    for name in {"train", split}:
        with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8-sig") as stream:
            writer = csv.writer(stream)
            writer.writerow(["kind", "body", "-" * (_CELL + 1)])
            writer.writerows([f"k{index % 3}", text, "-"] for index, text in enumerate(texts))
    options = {"task_name": "own", "text_columns": ("body",), "label_column": "kind"}
    return folder, options, lambda: [(index % 3, text) for index, text in enumerate(texts)]


def _own_lines(folder: Path, texts: list[str], split: str) -> Written:
    """JSON lines under the usual names; a test file has no labels."""
    for name in {"train", split}:
        labels = (0, 10, 9)
        rows = [{"text": text, "label": labels[index % 3]} for index, text in enumerate(texts)]
        for row in rows if name == "test" else ():
            del row["label"]
        lines = "\n".join(map(json.dumps, rows))
        (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    return folder, {"task_name": "own"}, lambda: [(0, text) for text in texts]


_WRITERS: Mapping[str, Callable[[Path, list[str], str], Written]] = {
    "imdb": _imdb,
    "trec": _trec,
    "yahoo": _yahoo,
    "tabs": functools.partial(_tabs, "IMDB", 2),
    "trec tabs": functools.partial(_tabs, "TREC", 6),
    "own commas": _own_commas,
    "own lines": _own_lines,
}
"""Layout -> what writes a small data set in it."""

_OF_IMDB = (("text",), "label", ("neg", "pos"))
_OF_TREC = (("text",), "label", tuple(documents.TREC_LABELS))
_TOLD: Mapping[str, tuple[tuple[str, ...], str, tuple[str, ...]]] = {
    "imdb": _OF_IMDB,
    "trec": _OF_TREC,
    "yahoo": (("text",), "label", tuple(str(number) for number in range(1, 11))),
    "tabs": _OF_IMDB,
    "trec tabs": _OF_TREC,
    "own commas": (("body",), "kind", ("k0", "k1", "k2")),
    "own lines": (("text",), "label", ("0", "9", "10")),
}
"""Layout -> what a trained model's folder says: columns of the text, of the label, the classes."""
