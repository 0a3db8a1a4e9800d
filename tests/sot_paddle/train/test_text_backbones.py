"""Every language model through the command: original checkpoint, training, resume, and back."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
import torch
import transformers

from sot_paddle.checkpoint import read_tensors
from sot_paddle.convert import convert_file
from sot_paddle.convert.formats.checkpoint_reading import read_as_paddle
from sot_paddle.convert.formats.source import open_source
from sot_paddle.deploy.exporting import export
from sot_paddle.deploy.input_rows import InputOptions, read_rows
from sot_paddle.deploy.predictor import open_predictor
from sot_paddle.deploy.trained import open_trained
from sot_paddle.explain.word_impact import explain_sentence
from sot_paddle.train.text_model import load_trained_text
from tests.sot_paddle.train.original_checkpoints import ORIGINALS
from tests.sot_paddle.train.run_output import in_process

_AS_TOLD = InputOptions()
STEPS = ("--max_steps", "4", "--save_steps", "2", "--logging_steps", "2")


@pytest.fixture(params=ORIGINALS, ids=lambda original: original.architecture)
def original(request, tmp_path):
    return request.param, request.param.write(tmp_path / "original")


@pytest.fixture
def run(tiny_folders, tmp_path, capfd):
    """Run the command in this process, which must succeed; what stderr said."""

    def start(architecture, model, out, *more):
        flags = ["--task_name", "RTE", "--data_dir", str(tiny_folders[0]), "--no_cuda"]
        flags += ["--model_type", architecture, "--model_name_or_path", str(model)]
        flags += ["--output_dir", str(out), "--cache_dir", str(tmp_path / "cache")]
        flags += ["--max_seq_length", "20", "--per_gpu_train_batch_size", "4", *more]
        capfd.readouterr()
        status = in_process("train_glue")(flags)
        said = capfd.readouterr().err
        assert status == 0, said
        return said

    return start


def same_bits(first, second):
    return set(first) == set(second) and all(
        first[name].dtype == second[name].dtype
        and first[name].tobytes() == np.ascontiguousarray(second[name]).tobytes()
        for name in first
    )


def test_a_trained_model_predicts_and_goes_back_bit_for_bit(original, run, tmp_path, tiny_folders):
    kind, folder = original
    out = tmp_path / "out"
    learn = ("--do_train", "--do_eval", *STEPS)
    run(kind.architecture, folder, out, "--head", "plain", "--do_predict", *learn)
    best = out / "best"
    run(kind.architecture, best, tmp_path / "predicted", "--head", "plain", "--do_predict")
    rows = (tmp_path / "predicted" / "RTE.tsv").read_text("utf-8").splitlines()
    assert rows[1:] == (out / "RTE.tsv").read_text("utf-8").splitlines()[1:]
    assert len(rows) == 6
    if kind.architecture == "openai-gpt":  # tests/sot_paddle/deploy exports the others' folders
        made = tmp_path / "export"
        assert set(export(open_trained(out), made, report=str)) == {"jit", "onnx"}
        asked = read_rows([str(tiny_folders[0] / "test.tsv")], open_trained(out).recipe, _AS_TOLD)
        found = open_predictor(made, runtime="onnx").predictions(asked, 2, logits=False)
        assert [one["label"] for one in found] == [row.split("\t")[1] for row in rows[1:]]
    back = tmp_path / "back"
    convert_file(best / "model.safetensors", back, kind.layout, kind.model, reverse=True)
    trained, _ = read_tensors(best / "model.safetensors")
    assert same_bits(
        {n: np.array(trained[n]) for n in trained}, read_as_paddle(open_source(back), kind.model)
    )
    subject = load_trained_text(best)
    batch = subject.tokenizer.encode_batch(["the cat sees a dog", "old tree"], ["red bird", "a"])
    with paddle.no_grad():
        ours = subject.model(**{name: paddle.to_tensor(a) for name, a in batch.items()}).numpy()
    evidence = explain_sentence(subject, ["the cat sees", "a red bird"])
    assert [word.text for word in evidence.words] == ["the", "cat", "sees", "a", "red", "bird"]
    assert np.isfinite(evidence.parts[-1].evidence).all()
    if kind.loads:
        theirs = transformers.AutoModelForSequenceClassification.from_pretrained(back).eval()
        given = {name: torch.tensor(array) for name, array in batch.items()}
        if kind.architecture == "openai-gpt":
            given.pop("token_type_ids")
        with torch.no_grad():
            expected = theirs(**given).logits.numpy()
        np.testing.assert_allclose(ours, expected, rtol=0, atol=2e-6)


def test_another_architecture_than_asked_for_is_refused(original, tiny_folders, tmp_path, capfd):
    kind, folder = original
    if kind.architecture == "spanbert":
        return  # its checkpoints say that they are BERT's
    flags = ["--task_name", "RTE", "--data_dir", str(tiny_folders[0]), "--do_train"]
    flags += ["--model_name_or_path", str(folder), "--output_dir", str(tmp_path / "out")]
    assert in_process("train_glue")(flags) == 2
    said = capfd.readouterr().err.strip()
    assert said.endswith(f"expected bert: give --model_type {kind.architecture}")
