"""Where weights come from: checkpoints of language models, folders and files of image models."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import numpy as np
import paddle
import pytest
import torch
import transformers

from sot_paddle.checkpoint import write_tensors
from sot_paddle.registry import create_model
from sot_paddle.tasks.glue_options import TrainConfig
from sot_paddle.train import pretrained
from sot_paddle.train.ema import ModelEma
from sot_paddle.train.model_folder import (
    ImageModelConfig,
    find_folder,
    load_foreign,
    load_trained,
    weights_file,
)
from sot_paddle.train.run_folder import CONFIG, EMA, WEIGHTS
from sot_paddle.weights import options_of, save_weights
from tests.sot_paddle.train import tiny_run

SIZES = {
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "vocab_size": 17,
    "max_position_embeddings": 24,
}


def _config(path, **more):
    fields = {"task_name": "RTE", "data_dir": "d", "output_dir": "o", "q_dim": 5, "k_dim": 3}
    fields["max_seq_length"] = 24
    return TrainConfig(model_name_or_path=str(path), **(fields | more))


@pytest.fixture
def one_tensor(monkeypatch):
    """Every checkpoint of PyTorch holds one tensor."""
    read = lambda source, model, **_: {"bert.x": np.zeros(3)}  # noqa: E731
    monkeypatch.setattr(pretrained, "read_as_paddle", read)


def _hugging_face(folder, **sizes):
    tiny_run.write_model(folder, **sizes)
    arrays = {"embeddings.word_embeddings.weight": np.ones((17, 12), dtype=np.float32)}
    write_tensors(folder / "model.safetensors", arrays)
    return folder


def test_what_a_config_does_not_state_is_said(tmp_path, one_tensor, caplog):
    folder = _hugging_face(tmp_path / "hf")
    config = json.loads((folder / "config.json").read_text())
    stated = {"num_attention_heads": 3, "hidden_act": "gelu", "layer_norm_eps": 1e-12}
    for left_out in ((), ("hidden_act",), ("hidden_act", "layer_norm_eps")):
        kept = {key: value for key, value in {**config, **stated}.items() if key not in left_out}
        (folder / "config.json").write_text(json.dumps(kept))
        caplog.clear()
        with caplog.at_level(logging.WARNING, logger="sot_paddle.train.pretrained"):
            pretrained.find(_config(folder)).build(2, {"pooling": "pooler"})
        expected = f"does not state {', '.join(left_out)}: those of bert_base are taken"
        assert [expected in line for line in caplog.messages] == [True] * bool(left_out)


def test_an_encoder_that_does_not_fit_is_refused(tmp_path):
    folder = tiny_run.write_model(tmp_path / "own")
    model = create_model("bert_base_mgcrp", q_dim=5, k_dim=3, **(SIZES | {"hidden_size": 15}))
    save_weights(model, folder / "model.safetensors")
    config = _config(folder, config_name=str(folder))
    found = pretrained.find(config)
    with pytest.raises(ValueError, match=r"has shape \(17, 15\), expected \(17, 12\)"):
        pretrained.load(found.build(2, config.head_options), found)


def test_names_are_looked_for_in_the_cache_and_in_the_hub_cache(tmp_path, one_tensor, monkeypatch):
    _hugging_face(tmp_path / "cache" / "bert-base-cased")
    (tmp_path / "hub").mkdir()
    snapshot = tmp_path / "hub" / "models--org--bert" / "snapshots" / "abc"
    snapshot.parent.mkdir(parents=True)
    _hugging_face(snapshot)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.chdir(tmp_path)
    config = _config("bert-base-cased", cache_dir=str(tmp_path / "cache"))
    assert "cache" in pretrained.find(config).origin
    found = pretrained.find(_config("org/bert"))
    assert found.origin == str(snapshot)
    with pytest.raises(ValueError, match="model 'bert-base-cased' is not on this machine"):
        pretrained.find(_config("bert-base-cased"))


def test_weights_of_images_are_refused_before_a_vocabulary_is_asked_for(tmp_path):
    tiny = {"token_type": "patch", "embed_dim": 12, "depth": 1, "num_heads": 3, "img_size": 32}
    save_weights(create_model("sot_tiny", 2, **tiny), tmp_path / "images.safetensors")
    with pytest.raises(ValueError, match="is of sot_tiny, which is no text model"):
        pretrained.find(_config(str(tmp_path / "images.safetensors")))


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("bert_base_mgcrp", {}, "--tokenizer_name"),
        ("deit_base", {"tokenizer_name": "x"}, r"weights of --model_type bert give one of bert_b"),
        ("roberta_base_mgcrp", {"tokenizer_name": "x"}, r"--model_type bert give one of bert_base"),
        ("bare", {}, "has no vocab.txt"),
    ],
)
def test_what_is_no_model_is_refused(tmp_path, one_tensor, monkeypatch, name, options, said):
    (_hugging_face(tmp_path / "bare") / "vocab.txt").unlink()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=said):
        pretrained.find(_config(name, **options))


STATED = {**SIZES, "hidden_act": "gelu", "layer_norm_eps": 1e-5, "type_vocab_size": 2}


def _folder_of_an_original(folder, name, sizes, arrays):
    """vocab.txt, sizes under a name of theirs, and the tensors as Paddle or PyTorch saves them."""
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(map(str, range(17))), encoding="utf-8")
    (folder / name).write_text(json.dumps(sizes), encoding="utf-8")
    if name.startswith("model"):
        tensors = {key: paddle.to_tensor(array) for key, array in arrays.items()}
        paddle.save(tensors, str(folder / "model_state.pdparams"))
    else:
        torch.save(
            {key: torch.from_numpy(array) for key, array in arrays.items()},
            folder / "pytorch_model.bin",
        )
    return folder


@pytest.mark.parametrize("prefix", ["bert.", ""], ids=["with a task's head", "BertModel alone"])
@pytest.mark.parametrize("file", ["model_state.pdparams", "model.safetensors"])
def test_paddlenlp_2_keeps_the_sizes_in_model_config_json(tmp_path, file, prefix):
    model = create_model("bert_base", 2, **STATED)
    arrays = {
        name: tensor.numpy()
        for name, tensor in model.state_dict().items()
        if not name.startswith("head.")
    }
    named = dict(arrays)
    named["bert.pooler.dense.weight"] = np.ones((12, 12), "float32")
    named["bert.pooler.dense.bias"] = np.ones(12, "float32")
    named = {prefix + name.removeprefix("bert."): array for name, array in named.items()}
    if prefix:
        named["cls.predictions.decoder_bias"] = np.ones(17, "float32")
    encoder = {"init_args": [], "init_class": "BertModel", **STATED}
    sizes = {"init_args": [encoder], "init_class": "BertForPretraining"}
    folder = _folder_of_an_original(tmp_path / "nlp2", "model_config.json", sizes, named)
    if file == "model.safetensors":  # as paddlenlp saves when asked
        (folder / "model_state.pdparams").unlink()
        write_tensors(folder / file, named, {"format": "np"})
    config = _config(folder, head="plain")
    found = pretrained.find(config)
    built = found.build(2, config.head_options)
    assert built.encoder_config.layer_norm_eps == 1e-5
    fresh = pretrained.load(built, found)
    assert fresh == ["head.cls_fc.weight", "head.cls_fc.bias"]
    for name, array in arrays.items():
        assert (built.state_dict()[name].numpy() == array).all()
    assert (built.state_dict()["head.dense.bias"].numpy() == 1).all()


def test_the_authors_of_bert_name_it_bert_config_json(tmp_path):
    import sot_torch_ref  # noqa: F401 (makes transformers importable beside a CPU build of torch)

    config = transformers.BertConfig(**STATED)
    arrays = {
        f"bert.{name}": tensor.numpy()
        for name, tensor in transformers.BertModel(config).state_dict().items()
    }
    folder = _folder_of_an_original(tmp_path / "tf", "bert_config.json", STATED, arrays)
    options = _config(folder, head="plain")
    found = pretrained.find(options)
    built = found.build(2, options.head_options)
    assert pretrained.load(built, found) == ["head.cls_fc.weight", "head.cls_fc.bias"]
    query = built.state_dict()["bert.encoder.layers.0.self_attn.q_proj.weight"]
    theirs = arrays["bert.encoder.layer.0.attention.self.query.weight"]
    assert (query.numpy() == theirs.T).all()
    assert built.encoder_config.num_attention_heads == 3
    other = _config(folder, config_name=str(folder / "bert_config.json"))
    assert pretrained.find(other).config == STATED


# folders and files of image models


VIT = {"img_size": 16, "embed_dim": 12, "depth": 1, "num_heads": 3, "wr_dim": 4}
VIT |= {"head_num_heads": 2, "drop_path_rate": 0.1, "head_qkv_bias": True}


def _write(folder: Path, name: str, options: dict, classes=("a", "b", "c")):
    model = create_model(name, len(classes), **options)
    ema = ModelEma(model, 0.5)
    for parameter in model.parameters():
        parameter.set_value(parameter * 2.0 + 0.1)
    ema.update()
    config = ImageModelConfig(
        **{"model": name, "num_classes": len(classes), "options": options_of(model)},
        **{"classes": classes, "img_size": 16, "crop_pct": 0.9, "interpolation": "bilinear"},
        **{"mean": (0.1, 0.2, 0.3), "std": (1.0, 2.0, 3.0)},
    )
    folder.mkdir(parents=True)
    save_weights(model, folder / WEIGHTS)
    with ema.in_place():
        save_weights(model, folder / EMA)
    (folder / CONFIG).write_bytes(config.file()[CONFIG])
    return model, ema, config


def test_what_a_path_means(tmp_path):
    _write(tmp_path / "run" / "best", "sot_tiny", VIT)
    best = tmp_path / "run" / "best"
    assert find_folder(tmp_path / "run", of_images=True) == best
    assert find_folder(best / WEIGHTS, of_images=True) == best
    assert weights_file(tmp_path / "run", ema=True) == best / EMA
    assert weights_file(best / WEIGHTS, ema=True) == best / WEIGHTS
    assert weights_file(best / WEIGHTS, ema=False) == best / WEIGHTS
    assert find_folder(tmp_path, of_images=True) is None
    with pytest.raises(ValueError, match="holds no trained image model"):
        load_trained(tmp_path)
    (best / EMA).unlink()
    with pytest.raises(ValueError, match="has no ema.safetensors"):
        load_trained(best)


@pytest.mark.parametrize(
    ("saved", "built", "said"),
    [
        (
            {"num_heads": 2},
            {},
            "trained with num_heads=2, and this asks for num_heads=3: give the same",
        ),
        ({"large_output": True, "wr_dim": 5}, {}, "trained with large_output=True"),
        ({"token_type": "linear", "alpha": 0.25}, {}, "trained with alpha=0.25"),
        ({"token_type": "linear", "alpha": 0.25, "wr_dim": 5}, {}, ""),  # both start afresh
        ({}, {"head_dropout": 0.3, "drop_rate": 0.2}, ""),
        ({"img_size": 32}, {}, ""),
    ],
)
def test_options_that_no_shape_shows_are_compared_where_weights_are_taken(
    tmp_path, saved, built, said
):
    save_weights(create_model("sot_tiny", 3, **{**VIT, **saved}), tmp_path / "w.safetensors")
    model = create_model("sot_tiny", 3, **{**VIT, **built})
    before = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    if said:
        with pytest.raises(ValueError, match=said):
            load_foreign(model, tmp_path / "w.safetensors")
        kept = set(before)
    else:
        kept = set(load_foreign(model, tmp_path / "w.safetensors").fresh)
        assert bool(kept) == ("wr_dim" in saved)
    for name in kept:
        np.testing.assert_array_equal(model.state_dict()[name].numpy(), before[name])
