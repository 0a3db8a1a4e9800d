"""Answers of a model for questions: from its folder and its exports as its training writes them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import paddle
import pytest

from sot_paddle.data.batches import pad_rows
from sot_paddle.data.squad.answers import DecodingOptions, decode
from sot_paddle.data.squad.questions import read_questions, span_features
from sot_paddle.deploy import exporting, predictor
from sot_paddle.deploy.recipe import preparation_of
from sot_paddle.deploy.trained import open_trained
from sot_paddle.registry import create_model
from sot_paddle.weights import save_weights
from tests.sot_paddle.explain import tiny_models
from tests.sot_paddle.train import state_files, tiny_run

OPTIONS = {"max_seq_length": 24, "doc_stride": 5, "n_best_size": 4, "max_answer_length": 6}
OPTIONS |= {"null_score_diff_threshold": 2.0, "null_score": "smallest"}


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> tuple[Path, Path, Path]:
    """A run's folder of a model with random weights, its export, and questions."""
    root = tmp_path_factory.mktemp("asked")
    run = root / "run"
    best = tiny_run.write_model(run / "best", max_position_embeddings=40)
    sizes = {key: value for key, value in tiny_run.SIZES.items() if key != "model_type"}
    sizes["max_position_embeddings"] = 40
    model = tiny_models.spread(create_model("bert_base", 2, **sizes, pooling="spans"))
    save_weights(model, best / "model.safetensors")
    more = {"sot_model": model.name, "sot_head": vars(model.head_config), "task": "SQuAD"}
    content = {**tiny_run.SIZES, **sizes, **more, "id2label": {}}
    (best / "config.json").write_text(json.dumps(content), encoding="utf-8")
    (run / "run.json").write_text(json.dumps({"options": OPTIONS}), encoding="utf-8")
    asked = state_files.write_squad(root / "dev.json", questions=5)
    out = root / "export"
    assert exporting.run_command([str(run), str(out), "--data", str(asked)]) == 0
    return run, out, asked


def expected(run: Path, asked: Path) -> dict:
    """What the training writes: the same windows, scores and decoding."""
    trained, questions = open_trained(run), read_questions(asked)
    tokenizer = preparation_of(trained.recipe, trained.folder).tokenizer
    features = span_features(questions, tokenizer, max_length=24, stride=5)
    batch = pad_rows(features.tokens, range(len(features)), max_length=24)
    batch.pop("labels")
    with paddle.no_grad():
        scores = trained.model(**{name: paddle.to_tensor(one) for name, one in batch.items()})
    options = DecodingOptions(n_best=4, max_tokens=6, threshold=2.0, null_score="smallest")
    return decode(questions, features, *(one.numpy() for one in scores), options)


@pytest.mark.parametrize(("which", "runtime"), [(0, "model"), (1, "onnx"), (1, "jit")])
def test_every_runtime_answers_as_the_training(files, tmp_path, which, runtime):
    out = tmp_path / "answers.jsonl"
    flags = [str(files[which]), str(files[2]), "--runtime", runtime, "--out", str(out), "--cpu"]
    assert predictor.run_command([*flags, "--batch-size", "2"]) == 0
    found = [json.loads(line) for line in out.read_text().splitlines()]
    answers = expected(files[0], files[2])
    assert [one["id"] for one in found] == list(answers)
    assert {one["id"]: one["answer"] for one in found} == {n: a.text for n, a in answers.items()}
    assert any(one["answer"] for one in found)
    for one, answer in zip(found, answers.values(), strict=True):
        np.testing.assert_allclose(one["null_odds"], answer.null_odds, rtol=1e-4, atol=1e-4)
        assert one["candidates"][0]["text"] == answer.candidates[0].text


def test_a_file_without_answers_is_answered(files, tmp_path, capsys):
    """Whoever asks need not know."""
    content = json.loads(files[2].read_text())
    asked = [qa for article in content["data"] for p in article["paragraphs"] for qa in p["qas"]]
    for question in asked:
        del question["answers"]
    place = tmp_path / "asked.json"
    place.write_text(json.dumps(content))
    assert predictor.run_command([str(files[1]), str(place)]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    wanted = expected(files[0], files[2])
    assert {one["id"]: one["answer"] for one in found} == {n: a.text for n, a in wanted.items()}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--columns", "question"), "takes one file, the official .json"),
        (("--logits",), "an answer has none"),
    ],
)
def test_what_questions_do_not_take_is_one_line(files, capsys, flags, message):
    assert predictor.run_command([str(files[1]), str(files[2]), *flags]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert message in line


def test_a_model_on_hidden_states_says_what_it_lacks(tmp_path):
    content = {"sot_model": "adapter_classifier", "num_layers": 3, "hidden_size": 12}
    (tmp_path / "config.json").write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(ValueError, match="hidden states, whose encoder it does not hold, predicts"):
        open_trained(tmp_path)
