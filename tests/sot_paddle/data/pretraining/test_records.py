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
from tests.sot_paddle.data.pretraining.dying import dying

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


def test_what_is_killed_goes_on(tmp_path) -> None:
    made = records()
    texts = (json.dumps(made[:30]), json.dumps(made[30:]))
    prepare(tmp_path / "whole", *texts)
    for questions in (1, 20, 34, 2):
        with pytest.raises(KeyboardInterrupt), dying(questions):
            prepare(tmp_path / "again", *texts)
    require_same(prepare(tmp_path / "again", *texts), made)
    for name in ("instances.bin", "order.bin", "manifest.json"):
        whole = (tmp_path / "whole" / "out" / name).read_bytes()
        assert (tmp_path / "again" / "out" / name).read_bytes() == whole


def changed(**values) -> str:
    good, bad = records(2)
    return json.dumps([good, {**bad, **values}])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[]", "no record"),
        ("", "no record"),
        (json.dumps(records(3))[:-1], "cut off after record 3"),
        (json.dumps(records(3))[:-9], "cut off after record 2"),
        ("[1, 2]", "cut off after record 0"),
        ('[{"input_ids": {}}]', "record 1: not JSON"),
        ('["a", {}]', "record 1: expected a JSON object"),
        ("{}", "record 1: input_ids must be a list of whole numbers from 0"),
        ("[" + " " * (1 << 21), r"record 1: longer than 1,048,576 bytes"),
        (b"[{\xff}]", "record 1: not JSON"),
        (changed(input_ids=[40] + [0] * 23), "record 2: token ids must be below 40"),
        (changed(input_ids=[4] * 24 + [2]), "input_mask must be a list .* as long as input_ids"),
        (changed(input_mask=[0, 1] * 12), "input_mask must be ones, then zeros"),
        (changed(segment_ids=[1] * 24), "segment_ids must be zeros, ones, and zeros"),
        (changed(masked_lm_positions=[23] * 4), "masked_lm_positions must be inside"),
        (changed(masked_lm_positions=[1, -1, 0, 0]), "masked_lm_positions must be a list of whole"),
        (changed(masked_lm_ids=["a"] * 4), "masked_lm_ids must be a list of whole numbers"),
        (changed(next_sentence_labels=[2]), "next_sentence_labels must be 0 or 1"),
        (
            changed(masked_lm_positions=[1] * 5, masked_lm_ids=[1] * 5),
            "record 2: expected 24 tokens and 4 predictions, got 24 tokens and 5 predictions",
        ),
    ],
)
def test_what_cannot_be_used_is_one_line(tmp_path, content, said) -> None:
    with pytest.raises(ValueError, match=said) as refused:
        prepare(tmp_path / "in", content)
    assert "\n" not in str(refused.value)
