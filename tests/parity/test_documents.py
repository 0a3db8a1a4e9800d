"""Compare the classification of whole texts (BERT4Doc): kept tokens, data sets, rates by layer."""

from __future__ import annotations

import csv
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import paddle
import pytest
import torch

from sot_paddle import distributed
from sot_paddle.data.corpus import REAL_SENTENCES
from sot_paddle.data.subword import kept_tokens
from sot_paddle.data.tokenizers import word_piece_tokenizer
from sot_paddle.tasks.document_options import DocumentTrainConfig
from sot_paddle.tasks.documents import DocumentSplit, load_documents
from sot_paddle.tasks.glue import GlueTask
from sot_paddle.train import document_command
from sot_paddle.train.feeding import Pace
from sot_torch_ref.padding import pad_batch
from sot_torch_ref.train import documents
from sot_torch_ref.train.schedule import warmup_linear
from tests.parity.models import encoder_options, models_of_equal_weights, paddle_names
from tests.parity.sides import assert_same, paddle_precision
from tests.parity.vocabularies import bert_tokenizer


@pytest.mark.parametrize("room", [6, 7, 12])
def test_kept_tokens_of_a_long_text(room: int) -> None:
    """Of every length around a room, odd and even, by every rule (specs.md D.2); no framework."""
    for length in (0, 1, room - 1, room, room + 1, room + 2, 2 * room, 2 * room + 1):
        for rule in (-2, -1, 0, 1, room // 2, room - 1):
            ids = list(range(length))
            assert kept_tokens(ids, room, rule) == documents.cut(ids, room, rule), (length, rule)


CELL = 131_072  # letters of a cell that Python's reader of commas takes unasked
PAD_ID = 3  # not 0, which an empty array holds


@dataclass(frozen=True)
class DataSet:
    """A small data set on disk, our options for it and what the reference reads of it."""

    folder: Path
    options: Mapping[str, Any]
    read: Callable[[], list[tuple[int, str]]]


def write_other_tables(folder: Path) -> None:
    """Write tables of D.2's form, which give way to the files as they are distributed."""
    for name in ("train.csv", "test.csv"):
        (folder / name).write_text("0\tanother text\n", encoding="utf-8")


def write_imdb(folder: Path, texts: Sequence[str], split: str) -> DataSet:
    """Write one file a text in a folder for each class."""
    root = folder / {"train": "train", "dev": "test"}[split]
    for part in ("neg", "pos"):
        (root / part).mkdir(parents=True)
    for index, text in enumerate(texts):
        path = root / ("neg", "pos")[index % 2] / f"{index}_{index % 10}.txt"
        path.write_text(text, encoding="utf-8")
    write_other_tables(folder)
    return DataSet(folder, {"task_name": "IMDB"}, lambda: documents.imdb_texts(root))


def write_trec(folder: Path, texts: Sequence[str], split: str) -> DataSet:
    """Write questions behind their class, in Latin-1."""
    path = folder / {"train": "train_5500.label", "dev": "TREC_10.label"}[split]
    kinds = documents.TREC_LABELS
    lines = [f"{kinds[index % 6]}:detail {text}" for index, text in enumerate(texts)]
    path.write_bytes(("\n".join(lines) + "\n\n").encode("latin-1", "replace"))
    write_other_tables(folder)
    return DataSet(folder, {"task_name": "TREC"}, lambda: documents.trec_texts(path))


def write_yahoo(folder: Path, texts: Sequence[str], split: str) -> DataSet:
    """Write quoted commas of a class and three parts of a text."""
    path = folder / {"train": "train.csv", "dev": "test.csv"}[split]
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, quoting=csv.QUOTE_ALL, lineterminator="\n")
        for index, text in enumerate(texts):
            more = (texts[-index], "", f'"quoted"\nand {text}')[index % 3]
            writer.writerow([index % 10 + 1, text, more, ""])
    return DataSet(folder, {"task_name": "Yahoo Answers"}, lambda: documents.yahoo_texts(path))


def write_tabs(
    folder: Path, texts: Sequence[str], split: str, *, task: str, classes: int
) -> DataSet:
    """Write tabs behind a byte-order mark; quotes are letters there, an open one ends nothing."""
    path = folder / {"train": "train.csv", "dev": "test.csv"}[split]
    lines = [f"{index % classes}\t{text}" for index, text in enumerate(texts)]
    lines[-2] += ' "left open'
    path.write_text("\ufeff" + "\n".join(lines), encoding="utf-8", newline="")
    bare = folder / "without mark"
    bare.write_text("\n".join(lines), encoding="utf-8")
    return DataSet(folder, {"task_name": task}, lambda: documents.tab_texts(bare))


def write_own(folder: Path, texts: Sequence[str], split: str) -> DataSet:
    """Write tables with a header; a test file has no labels."""
    for name in {"train", split}:
        lines = ["text" if name == "test" else "label\ttext"]
        for index, text in enumerate(texts):
            lines.append(text if name == "test" else f"{(0, 10, 9)[index % 3]}\t{text}")
        (folder / f"{name}.tsv").write_text("\n".join(lines), encoding="utf-8", newline="")
    labels = {"test": (0, 0, 0)}.get(split, (0, 2, 1))
    numbered = [(labels[index % 3], text) for index, text in enumerate(texts)]
    return DataSet(folder, {"task_name": "own"}, lambda: numbered)


OF_IMDB = (("text",), "label", ("neg", "pos"))
OF_TREC = (("text",), "label", tuple(documents.TREC_LABELS))
OF_YAHOO = (("text",), "label", tuple(str(number) for number in range(1, 11)))
OF_OWN = (("text",), "label", ("0", "9", "10"))
WRITE_IMDB_TABS = functools.partial(write_tabs, task="IMDB", classes=2)
WRITE_TREC_TABS = functools.partial(write_tabs, task="TREC", classes=6)
LAYOUTS = [
    # writer, tokens of a row, rule of the cut, split, lower case, and what a trained model's
    # folder says: columns of the text, of the label, the classes
    (write_imdb, 16, 5, "train", True, OF_IMDB),
    (write_imdb, 16, -2, "dev", True, OF_IMDB),
    (write_trec, 13, 0, "train", True, OF_TREC),
    (write_yahoo, 15, -1, "train", True, OF_YAHOO),
    (write_own, 12, 9, "dev", True, OF_OWN),
    (write_own, 17, -1, "test", False, OF_OWN),
    (WRITE_IMDB_TABS, 14, 0, "train", True, OF_IMDB),
    (WRITE_TREC_TABS, 14, 0, "dev", True, OF_TREC),
]


@pytest.mark.parametrize(("write", "max_length", "rule", "split", "lower_case", "table"), LAYOUTS)
def test_batches_of_a_layout(
    write: Callable[..., DataSet],
    max_length: int,
    rule: int,
    split: str,
    lower_case: bool,
    table: tuple[tuple[str, ...], str, tuple[str, ...]],
    real_checkpoint: Path,
    tmp_path: Path,
) -> None:
    """An epoch of padded batches, cut as the original cuts; the reference reads files whole."""
    texts = [" ".join(text.split()) or "." for text in REAL_SENTENCES]
    asked = {"max_seq_length": max_length, "do_lower_case": lower_case}

    def load(name: str, texts: Sequence[str]) -> tuple[DataSet, GlueTask, DocumentSplit]:
        folder = tmp_path / name
        folder.mkdir()
        data = write(folder, texts, split)
        task = load_task(real_checkpoint, data, split, **asked)
        return data, task, split_of(task, split)

    data, task, whole = load("texts", texts)
    assert (task.table.text, task.table.label, task.table.labels) == table
    cut = cut_by(whole, rule)
    rows = data.read()
    reference = bert_tokenizer(real_checkpoint, do_lower_case=lower_case)
    expected = torch_batch(reference, rows, rule, room=max_length - 2, max_length=max_length)
    if split == "test":
        del expected["labels"]
    batches = [batch.tolist() for batch in cut.batches]
    assert_same(joined(cut, batches), expected)
    assert cut.indices.tolist() == list(range(len(rows)))

    brief = sorted(range(len(rows)), key=lambda position: len(rows[position][1]))[:3]
    short = joined(cut_by(whole, rule, padding="longest"), [brief])
    narrow = torch_batch(
        reference, [rows[i] for i in brief], rule, room=max_length - 2, max_length=None
    )
    assert_same({"ids": short["input_ids"]}, {"ids": narrow["input_ids"]})

    by_option = split_of(load_task(real_checkpoint, data, split, trunc_medium=rule, **asked), split)
    batch = joined(by_option, batches)  # padded with 0
    assert_same(
        {"ids": batch["input_ids"]}, {"ids": expected["input_ids"] * expected["attention_mask"]}
    )

    assert cut_by(whole, rule).fingerprint == cut.fingerprint != whole.fingerprint
    assert load("again", texts)[2].fingerprint == whole.fingerprint
    assert load("other", [*texts[:-1], texts[-1] + " on"])[2].fingerprint != whole.fingerprint


def load_task(checkpoint: Path, data: DataSet, split: str, **options: Any) -> GlueTask:
    """Load a task as the command does; texts are cut at the head unless asked otherwise."""
    asked = {"train": "do_train", "dev": "do_eval", "test": "do_predict"}[split]
    config = DocumentTrainConfig(
        model_name_or_path="m",
        output_dir="o",
        data_dir=str(data.folder),
        per_gpu_eval_batch_size=7,
        **{asked: True},
        **options,
        **data.options,
    )
    lower, length = config.do_lower_case, config.length
    tokenizer = word_piece_tokenizer(checkpoint, do_lower_case=lower, max_length=length)
    return load_documents(config, tokenizer)


def split_of(task: GlueTask, name: str) -> DocumentSplit:
    """Return the split of a task by its name."""
    return {"train": task.train, **task.dev, **task.test}[name]


def cut_by(split: DocumentSplit, rule: int, *, padding: str = "max_length") -> DocumentSplit:
    """Cut the rows of a split by another rule; padding has another id."""
    tokenizer = split._tokenizer.truncating(rule)
    tokenizer.pad_id = PAD_ID
    return DocumentSplit(split._rows, tokenizer, padding, 7)


def joined(split: DocumentSplit, batches: Sequence[Sequence[int]]) -> dict[str, np.ndarray]:
    """Load batches of equal width and join them."""
    loaded = [{n: t.numpy() for n, t in batch.items()} for batch in split.load(batches)]
    return {name: np.concatenate([batch[name] for batch in loaded]) for name in loaded[0]}


def torch_batch(
    tokenizer: Any,
    rows: Sequence[tuple[int, str]],
    rule: int,
    *,
    room: int,
    max_length: int | None,
) -> dict[str, np.ndarray]:
    """Encode rows by transformers' slow tokenizer, cut and pad them as the reference does."""
    encoded = []
    for _, text in rows:
        tokens = tokenizer.convert_tokens_to_ids(tokenizer.tokenize(text))
        kept = documents.cut(tokens, room, rule)
        encoded.append([tokenizer.cls_token_id, *kept, tokenizer.sep_token_id])
    padded = pad_batch(encoded, [0] * len(encoded), PAD_ID, max_length)
    arrays = {name: tensor.numpy() for name, tensor in padded.items()}
    return arrays | {"labels": np.array([label for label, _ in rows])}


RATE = 3e-5
DATA_ROWS, BATCH_SIZE, EPOCHS = 83, 8, 2.0
STEPS = int(DATA_ROWS / BATCH_SIZE * EPOCHS)  # of the schedule; the run has two more
MODEL = {**encoder_options(12, 3, 20, 30, 18), "pooling": "layers"}
RATES: list[dict[str, Any]] = [
    {},
    {"discr": True, "layer_learning_rate": (2e-5,)},
    {"discr": True, "layer_learning_rate": (1e-5, 4e-5, 2e-5)},
    {"paddle_compat": True},
]


@pytest.mark.parametrize("options", RATES, ids=str)
def test_rate_and_decay_of_every_parameter(options: Mapping[str, Any]) -> None:
    """At every step of a run, by the names of the parameters."""
    model, torch_model = models_of_equal_weights("bert_base", MODEL, "float64")
    if options.get("paddle_compat"):
        torch_rates, torch_decays = rates_of_the_paddle_port(torch_model)
    else:
        torch_rates, torch_decays = rates_of_groups(torch_model, layer_rates(options))
    names = paddle_names("bert_base", torch_model)
    paddle_rates, paddle_decays = rates_of_paddle(model, options)
    assert_same(
        paddle_rates, {names[name]: rates for name, rates in torch_rates.items()}, bound=1e-12
    )
    assert paddle_decays == {names[name]: decay for name, decay in torch_decays.items()}


RUNS = [(3, 1, -1, 1), (83, 1, -1, 1), (83, 2, -1, 1), (83, 1, 1, 1), (83, 1, -1, 3)]


@pytest.mark.parametrize("options", [{}, {"paddle_compat": True}], ids=str)
@pytest.mark.parametrize(("rows", "accumulated", "max_steps", "processes"), RUNS)
def test_steps_of_the_schedule(
    rows: int, accumulated: int, max_steps: int, processes: int, options: Mapping[str, Any]
) -> None:
    """Ours by the formula of specs.md D.4."""
    config = document_config(options, gradient_accumulation_steps=accumulated, max_steps=max_steps)
    with mock.patch.object(distributed, "world_size", return_value=processes):
        pace = Pace(-(-rows // (BATCH_SIZE * processes)), accumulated, rows)
        steps = document_command.schedule_steps(config, pace, 99)
    by_step, batch = max_steps > 0 or options, BATCH_SIZE * accumulated * processes
    assert steps == (99 if by_step else max(1, int(rows / batch * EPOCHS)))


def document_config(options: Mapping[str, Any], **more: Any) -> DocumentTrainConfig:
    """Return the options of ``tools/train_text.py``."""
    return DocumentTrainConfig(
        task_name="IMDB",
        data_dir="d",
        model_name_or_path="m",
        output_dir="o",
        per_gpu_train_batch_size=BATCH_SIZE,
        num_train_epochs=EPOCHS,
        learning_rate=RATE,
        **options,
        **more,
    )


def rates_of_paddle(
    model: paddle.nn.Layer, options: Mapping[str, Any]
) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Return the rate of every parameter at every step of our optimizer, and its decay."""
    config = document_config(options)
    pace = Pace(-(-DATA_ROWS // BATCH_SIZE), 1, DATA_ROWS)
    rates: dict[str, list[float]] = {name: [] for name, _ in model.named_parameters()}
    of_step: dict[str, float] = {}
    names = {parameter.name: name for name, parameter in model.named_parameters()}
    with paddle_precision("float64"):
        optimizer, schedule = document_command.optimizer(
            config, model, pace, int(pace.steps * EPOCHS)
        )
        create_rate = optimizer._create_param_lr

        def record_rate(parameter_and_gradient: Any) -> paddle.Tensor:
            rate = create_rate(parameter_and_gradient)
            of_step[names[parameter_and_gradient[0].name]] = rate.item()
            return rate

        optimizer._create_param_lr = record_rate
        for _ in range(STEPS):
            for parameter in model.parameters():
                parameter.grad = paddle.zeros_like(parameter)
            optimizer.step()
            for name, rate in of_step.items():
                rates[name].append(rate)
            schedule.step()
    decays = {}
    for name, parameter in model.named_parameters():
        decayed = optimizer._apply_decay_param_fun(parameter.name)
        decays[name] = config.weight_decay if decayed else 0.0
    return rates, decays


def layer_rates(options: Mapping[str, Any]) -> list[float]:
    """Return the reference's rate of every layer."""
    count = MODEL["num_hidden_layers"]
    if not options.get("discr"):
        return [RATE] * count
    return list(documents.layer_rates(count, list(options["layer_learning_rate"]), 0.95))


def rates_of_groups(
    model: torch.nn.Module, rates: list[float]
) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Run the original's groups and schedule; return rates at every step and decays by name."""
    groups = documents.discriminative_groups(model, rates, RATE, 0.01)
    optimizer = torch.optim.SGD(
        [{key: value for key, value in group.items() if key != "names"} for group in groups]
    )
    schedule = warmup_linear(optimizer, 0.1 * STEPS, STEPS)
    curves: dict[str, list[float]] = {name: [] for group in groups for name in group["names"]}
    for _ in range(STEPS):
        for group, at_work in zip(groups, optimizer.param_groups, strict=True):
            for name in group["names"]:
                curves[name].append(at_work["lr"])
        optimizer.step()
        schedule.step()
    return curves, {name: group["weight_decay"] for group in groups for name in group["names"]}


def rates_of_the_paddle_port(
    model: torch.nn.Module,
) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Return what the hooks of the Paddle port make of a linear schedule (specs.md D.4)."""
    total = -(-DATA_ROWS // BATCH_SIZE) * int(EPOCHS)
    warmup = int(0.1 * total)
    factors = []
    for step in range(STEPS):
        factors.append(step / warmup if step < warmup else (total - step) / (total - warmup))
    hooked = documents.hooked_rates(model, RATE, 0.95)
    curves = {name: [rate * factor for factor in factors] for name, rate in hooked.items()}
    count = MODEL["num_hidden_layers"]
    groups = documents.discriminative_groups(model, [RATE] * count, RATE, 0.01)
    return curves, {name: group["weight_decay"] for group in groups for name in group["names"]}
