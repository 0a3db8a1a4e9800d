"""A model from any source in one call, and every language model through the command and back."""

from __future__ import annotations

import json
import logging

import numpy as np
import paddle
import paddlenlp
import pytest
import torch
import transformers
from paddlenlp.transformers import (
    BertForSequenceClassification,
    BertModel,
    BertTokenizer,
    RobertaModel,
)

from sot_paddle import create_model, from_pretrained, save_weights
from sot_paddle.checkpoint import read_tensors
from sot_paddle.convert import convert_file
from sot_paddle.convert.formats.source import open_source, read_as_paddle
from sot_paddle.deploy.exporting import export
from sot_paddle.deploy.predictor import Row, open_predictor
from sot_paddle.deploy.trained import open_trained
from sot_paddle.explain.word_impact import explain_sentence
from sot_paddle.train.model_folder import load_trained_text
from sot_paddle.train.run_folder import EMA
from tests.sot_paddle.explain import tiny_models
from tests.sot_paddle.train import tiny_run
from tests.sot_paddle.train.original_checkpoints import BERT, ORIGINALS, _shaken
from tests.sot_paddle.train.run_output import in_process

IDS = [[2, 7, 9, 3, 5, 3], [2, 4, 8, 3, 6, 3]]


KINDS = (BERT, *ORIGINALS)
OF_PADDLENLP = {"bert": BertModel, "spanbert": BertModel, "roberta": RobertaModel}


@pytest.fixture(scope="module", params=KINDS, ids=lambda kind: kind.architecture)
def original(request, tmp_path_factory):
    """A checkpoint as its authors released it; not to be changed."""
    return request.param, request.param.write(tmp_path_factory.mktemp("original") / "model")


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return BERT.write(tmp_path_factory.mktemp("bert") / "bert")


def scores(model):
    assert not model.training
    with paddle.no_grad():
        return model(paddle.to_tensor(IDS)).numpy()


def files_in(folder):
    return {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}


def test_every_language_model_from_its_original_and_from_what_was_converted(original, tmp_path):
    kind, folder = original
    before = files_in(folder)
    convert_file(folder, tmp_path / "converted", kind.layout, kind.model)
    convert_file(folder, tmp_path / "converted.safetensors", kind.layout, kind.model)
    new = {} if kind.loads else {"num_classes": 2, "head": "mgcrp", "q_dim": 5, "k_dim": 3}
    places = (folder, tmp_path / "converted", tmp_path / "converted.safetensors")
    models = [from_pretrained(place, **new) for place in places]
    if kind.loads:
        theirs = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
        with torch.no_grad():
            expected = theirs(torch.tensor(IDS)).logits.numpy()
        for model in models:
            np.testing.assert_allclose(scores(model), expected, rtol=0, atol=2e-6)
    for model in models[1:]:
        for name, tensor in model.state_dict().items():
            if kind.loads or not name.startswith("head."):
                assert (tensor.numpy() == models[0].state_dict()[name].numpy()).all(), name
    assert files_in(folder) == before
    if kind.architecture in OF_PADDLENLP:
        encoder = OF_PADDLENLP[kind.architecture].from_pretrained(str(tmp_path / "converted"))
        encoder.eval()
        words = encoder(paddle.to_tensor(IDS))[0].numpy()
        last = models[0](paddle.to_tensor(IDS), return_taps=True)[1]["layers.1"].numpy()
        np.testing.assert_allclose(words, last, rtol=0, atol=2e-6)


def test_what_paddlenlp_loads_has_pooler_classifier_and_tokenizer(bert, tmp_path):
    convert_file(bert, tmp_path / "ours", "bert_hf", "bert_base")
    theirs = BertForSequenceClassification.from_pretrained(str(tmp_path / "ours"))
    theirs.eval()
    expected = theirs(paddle.to_tensor(IDS))[0].numpy()
    np.testing.assert_allclose(expected, scores(from_pretrained(bert)), rtol=0, atol=2e-6)
    pooled = BertModel.from_pretrained(str(tmp_path / "ours")).pooler.dense.weight.numpy()
    assert (pooled == from_pretrained(tmp_path / "ours").head.dense.weight.numpy()).all()
    ids = BertTokenizer.from_pretrained(str(tmp_path / "ours"))("the old cat")["input_ids"]
    assert ids == [2, 5, 16, 7, 3]


@pytest.mark.parametrize("kind", ["Bert", "Roberta"])
def test_a_classifier_of_paddlenlp_keeps_its_head(kind, tmp_path):
    sizes = {"vocab_size": 20, "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 20, "max_position_embeddings": 16, "num_labels": 3}
    config = getattr(paddlenlp.transformers, f"{kind}Config")(**sizes)
    theirs = getattr(paddlenlp.transformers, f"{kind}ForSequenceClassification")(config)
    theirs.save_pretrained(tmp_path)
    theirs.eval()
    with paddle.no_grad():
        expected = theirs(paddle.to_tensor(IDS)).numpy()
    np.testing.assert_allclose(scores(from_pretrained(tmp_path)), expected, rtol=0, atol=1e-6)
    second = from_pretrained(tmp_path, head="mgcrp", num_classes=3, q_dim=5, k_dim=3)
    own = theirs.state_dict()
    scores_of_class = second.head.cls_fc.weight.numpy()  # of another head: new
    assert not any(np.array_equal(scores_of_class, tensor.numpy()) for tensor in own.values())
    content = json.loads((tmp_path / "config.json").read_text("utf-8"))
    content["architectures"] = [f"{kind}ForTokenClassification"]  # the same names
    (tmp_path / "config.json").write_text(json.dumps(content), "utf-8")
    with pytest.raises(ValueError, match="holds no trained classifier"):
        from_pretrained(tmp_path)


def test_a_new_head_is_said_and_a_trained_one_is_complete(bert, tmp_path, caplog):
    with caplog.at_level(logging.WARNING, logger="sot_paddle.train.model_folder"):
        model = from_pretrained(bert, head="mgcrp", num_classes=4, q_dim=5, k_dim=3)
    assert "new, with random weights: head.pooling.q_proj.weight" in caplog.text
    assert (model.name, model.num_classes) == ("bert_base_mgcrp", 4)
    save_weights(model, tmp_path / "saved.safetensors")
    caplog.clear()
    again = from_pretrained(tmp_path / "saved.safetensors")
    assert not caplog.text
    np.testing.assert_array_equal(scores(again), scores(model))
    fewer = from_pretrained(tmp_path / "saved.safetensors", num_classes=2)
    q_proj = "head.pooling.q_proj.weight"
    assert (fewer.state_dict()[q_proj].numpy() == model.state_dict()[q_proj].numpy()).all()
    assert from_pretrained(bert, hidden_dropout_prob=0.3).encoder_config.hidden_dropout_prob == 0.3
    with pytest.raises(
        ValueError, match="was trained with alpha=0.5, and this asks for alpha=0.25"
    ):
        from_pretrained(tmp_path / "saved.safetensors", alpha=0.25)


@pytest.mark.parametrize("name", ["sot_tiny", "swin_tiny"])
def test_a_folder_of_a_training_and_a_file_of_images(name, tmp_path):
    text = tiny_models.write_text_model(tmp_path / "text", options=None)
    trained = from_pretrained(text)
    assert trained.name == "bert_base_mgcrp"
    trained.head.cls_fc.bias.set_value(trained.head.cls_fc.bias + 1.0)
    save_weights(
        trained, text / "best" / "mine.safetensors"
    )  # a file that is named is the one that is read
    mine = from_pretrained(text / "best" / "mine.safetensors").head.cls_fc.bias
    np.testing.assert_array_equal(mine.numpy(), trained.head.cls_fc.bias.numpy())
    folder = tiny_models.write_image_model(tmp_path / "run" / "best", name)
    images = paddle.to_tensor(np.random.default_rng(0).normal(size=(2, 3, 16, 16)), "float32")
    averaged = tiny_models.image_model(name)
    for parameter in averaged.parameters():
        paddle.assign(parameter * 0.5, output=parameter)
    save_weights(averaged, folder / EMA)
    expected = averaged(images).numpy()
    np.testing.assert_array_equal(from_pretrained(tmp_path / "run")(images).numpy(), expected)
    save_weights(averaged, tmp_path / "saved.pdparams")
    again = from_pretrained(tmp_path / "saved.pdparams")
    np.testing.assert_array_equal(again(images).numpy(), expected)
    assert from_pretrained(folder, num_classes=7)(images).shape == [2, 7]
    raw = from_pretrained(folder / "model.safetensors")(images).numpy()
    assert not np.array_equal(raw, expected)


def test_a_converted_file_of_images_tells_its_model_and_a_released_one_is_converted(tmp_path):
    model = create_model("deit_tiny", 5, img_size=32, depth=1)
    ours = tmp_path / "ours.safetensors"
    save_weights(model, ours)
    released, converted = tmp_path / "deit.pth", tmp_path / "there.safetensors"
    convert_file(
        tmp_path / "ours.safetensors", released, "deit_official", "deit_tiny", reverse=True
    )
    convert_file(released, converted, "deit_official", "deit_tiny")
    model.eval()
    images = paddle.randn([1, 3, 32, 32])
    again = from_pretrained(converted)
    assert (again.name, again.num_classes) == ("deit_tiny", 5)
    np.testing.assert_array_equal(again(images).numpy(), model(images).numpy())
    with pytest.raises(ValueError, match=r"deit.pth is no .*tools/convert_weights.py"):
        from_pretrained(released)


def test_what_cannot_be_used_is_refused_by_its_name(bert, tmp_path):
    def refused(*words, place=bert, **options):
        with pytest.raises(ValueError) as error:
            from_pretrained(place, **options)
        message = str(error.value)
        assert "\n" not in message
        assert all(word in message for word in words), message

    refused("nowhere", "sot_paddle.create_model", place="nowhere")
    refused("head must be one of", head="fancy")
    refused("num_classes must be at least 1", num_classes=0)
    config = json.loads((bert / "config.json").read_text("utf-8"))
    sizes = {key: config[key] for key in tiny_run.SIZES}
    encoder = _shaken(transformers.BertModel(transformers.BertConfig(**sizes)))
    encoder.save_pretrained(tmp_path / "encoder")
    refused("encoder holds no trained classifier", "num_classes", place=tmp_path / "encoder")
    save_weights(create_model("deit_tiny", 3, depth=1, img_size=32), tmp_path / "image.safetensors")
    refused("give pooling", place=tmp_path / "image.safetensors", head="mgcrp")
    refused("unknown option 'q_dimm'", q_dimm=4)
    (tmp_path / "empty").mkdir()
    refused("empty: no weights; expected one of", place=tmp_path / "empty")


# through the command


STEPS = ("--max_steps", "4", "--save_steps", "2", "--logging_steps", "2")


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
    if kind is BERT:
        return  # every other test trains it
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
        export(open_trained(out), made)
        table = (tiny_folders[0] / "test.tsv").read_text("utf-8").splitlines()[1:]
        asked = [Row(None, tuple(line.split("\t")[1:3])) for line in table]
        found = open_predictor(made).predictions(asked, 2)
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
    if kind.architecture in ("bert", "spanbert"):
        return  # its checkpoints say that they are BERT's
    flags = ["--task_name", "RTE", "--data_dir", str(tiny_folders[0]), "--do_train"]
    flags += ["--model_name_or_path", str(folder), "--output_dir", str(tmp_path / "out")]
    assert in_process("train_glue")(flags) == 2
    said = capfd.readouterr().err.strip()
    assert said.endswith(f"expected bert: give --model_type {kind.architecture}")
