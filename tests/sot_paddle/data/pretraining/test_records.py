"""JSON records of instances: those that come out are those that went in, or one line."""

from __future__ import annotations

import codecs
import json
import random
from pathlib import Path

import numpy as np
import pytest

from sot_paddle.data.pretraining import record_files
from sot_paddle.data.pretraining.instance_files import InstanceRows
from sot_torch_ref.train.instances import make_instances

NAMES = {"cls": 1, "sep": 2, "mask": 3, "vocab_size": 40, "max_seq_length": 24}


def records(count: int = 60) -> list[dict]:
    """What the reference makes, as the Paddle port's files hold it: without weights."""
    rng = random.Random(2)
    documents = [
        [[rng.randint(4, 39) for _ in range(rng.randint(1, 14))] for _ in range(rng.randint(1, 9))]
        for _ in range(40)
    ]
    made = make_instances(documents, **NAMES, max_predictions=4, dupe_factor=1)[:count]
    rows = [{name: array.tolist() for name, array in one.items()} for one in made]
    return [{k: v for k, v in row.items() if k != "masked_lm_weights"} for row in rows]


def prepare(folder: Path, *contents: str | bytes, **more) -> InstanceRows:
    folder.mkdir(exist_ok=True)
    files = []
    for index, content in enumerate(contents):
        path = folder / f"{index}.json"
        if not path.exists():
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        files.append(path)
    options = {"vocab_size": 40, "report": lambda line: None, **more}
    record_files.prepare_records(files, folder / "out", **options)
    return InstanceRows(folder / "out")


def require_same(rows: InstanceRows, made: list[dict]) -> None:
    assert len(rows) == len(made)
    for position, record in enumerate(made):
        found = rows.row(position)
        for name, values in record.items():
            assert np.array_equal(found[name], np.ravel(values)), (position, name)
        used = np.array(record["masked_lm_positions"]) > 0
        assert np.array_equal(found["masked_lm_weights"], used)


def test_records_come_out_as_they_went_in(tmp_path, monkeypatch) -> None:
    made = records()
    for record in made[:9]:
        (record["next_sentence_labels"],) = record["next_sentence_labels"]  # a number or a list
    made[5]["masked_lm_weights"] = [float(p > 0) for p in made[5]["masked_lm_positions"]]
    listed, lines = json.dumps(made[:40]), "\n".join(map(json.dumps, made[40:]))
    require_same(prepare(tmp_path / "two", listed, lines), made)
    marked = [codecs.BOM_UTF8 + text.encode() for text in (listed, lines)]
    require_same(prepare(tmp_path / "marked", *marked), made)
    monkeypatch.setattr(record_files, "_CHUNK", 64)
    require_same(prepare(tmp_path / "indented", json.dumps(made, indent=1)), made)


def changed(**values) -> str:
    good, bad = records(2)
    return json.dumps([good, {**bad, **values}])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[]", "no record"),
        ("", "no record"),
        (json.dumps(records(3))[:-1], "record 3: the file is cut off after this record"),
        (json.dumps(records(3))[:-9], "record 2: the file is cut off"),
        ("[1, 2]", "record 0: the file is cut off"),
        ('[{"input_ids": {}}]', "record 1: Expecting ',' delimiter"),
        ('["a", {}]', "record 1: Extra data"),
        ("{}", "record 1: input_ids must be a list of whole numbers from 0"),
        (b"[{\xff}]", "0.json, record 0: 'utf-8' codec can't decode byte 0xff"),
        (changed(input_ids=[40] + [0] * 23), "record 2: token ids must be below 40"),
        (changed(input_ids=[4] * 24 + [2]), "input_ids: expected 24 numbers, got 25"),
        (changed(input_mask=[0, 1] * 12), "input_mask must be ones, then zeros"),
        (changed(segment_ids=[1] * 24), "segment_ids: both stretches must have a token"),
        (changed(segment_ids=[0, 1] * 12), "segment_ids must be zeros, ones, and zeros"),
        (changed(masked_lm_positions=[23] * 4), "masked_lm_positions must be inside"),
        (changed(masked_lm_positions=[1, -1, 0, 0]), "masked_lm_positions must be a list of whole"),
        (changed(masked_lm_ids=["a"] * 4), "masked_lm_ids must be a list of whole numbers"),
        (changed(masked_lm_ids=[1.5] * 4), "masked_lm_ids must be a list of whole numbers"),
        (changed(masked_lm_weights=[0, 1, 0, 0]), "masked_lm_weights must be ones, then zeros"),
        (changed(next_sentence_labels=[2]), "next_sentence_labels must be 0 or 1"),
    ],
)
def test_what_cannot_be_used_is_one_line(tmp_path, content, said) -> None:
    with pytest.raises(ValueError, match=said) as refused:
        prepare(tmp_path / "in", content)
    assert "\n" not in str(refused.value)
