"""Files of weights as other tools write and hand them on: read as they are, or named."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

from sot_paddle.checkpoint import read_tensors, write_tensors
from sot_paddle.convert.formats.checkpoint_reading import read_for_model
from sot_paddle.convert.formats.source import open_source, read_as_paddle
from tests.sot_paddle.convert.converted import Conversion

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 12345\n"


@pytest.fixture
def conversion(tmp_path) -> Conversion:
    """Of a plain BERT."""
    return Conversion(tmp_path, "bert_hf", "bert_base")


@pytest.fixture
def arrays(toy):
    """Of a BERT with a classifier."""
    return toy("bert_hf").arrays


@pytest.fixture
def expected(toy):
    """The same in Paddle's names."""
    return read_tensors(toy("bert_hf").converted)[0]


@pytest.fixture
def converted(conversion, expected):
    """Convert a file, expect the plain file's tensors, and hand the notes back."""

    def convert(name: str, **options) -> str:
        made = conversion(name, "made.safetensors", overwrite=True, **options)
        found = conversion.read("made.safetensors")
        assert set(found) == set(expected)
        for key, array in expected.items():
            np.testing.assert_array_equal(found[key], array)
        return "\n".join(made.notes)

    return convert


def tensors(arrays, prefix=""):
    return {prefix + name: torch.tensor(array) for name, array in arrays.items()}


@pytest.mark.parametrize("prefix", ["model.", "_orig_mod.module.", "module._orig_mod.", "a.b.c."])
@pytest.mark.parametrize("kind", ["x.ckpt", "x.safetensors"])
def test_what_all_names_begin_with_is_taken_off(converted, tmp_path, arrays, prefix, kind):
    wrapped = tensors(arrays, prefix)
    if kind == "x.ckpt":
        torch.save({"state_dict": wrapped, "epoch": 3}, tmp_path / kind)
    else:
        safetensors.torch.save_file(wrapped, tmp_path / kind)
    said = converted(kind)
    assert said.count(f"{kind}: every name begins with {prefix!r}: stripped") == 1


def test_a_prefix_of_the_layout_itself_stays(conversion, hf_shapes, random_arrays):
    for written, kept in (("bert.", "bert."), ("model.bert.", "bert."), ("model.", "")):
        encoder = random_arrays(hf_shapes(written, pooler=False, classifier=False))
        conversion.write("a.safetensors", encoder)
        conversion("a.safetensors", "b.safetensors", overwrite=True)
        assert read_tensors(conversion.folder / "b.safetensors")[1]["source_prefix"] == kept


@pytest.mark.parametrize("prefix", ["roberta.", "model.roberta."])
def test_the_names_of_another_layout_are_not_bent_into_this_one(
    conversion, hf_shapes, random_arrays, prefix
):
    """Without its prefix RoBERTa's encoder has BERT's names, and other positions."""
    encoder = random_arrays(hf_shapes(prefix, pooler=False, classifier=False))
    conversion.write("a.safetensors", encoder)
    with pytest.raises(ValueError, match="these are names of --layout roberta_hf"):
        conversion("a.safetensors", "b.safetensors")


def test_a_missing_tensor_is_not_laid_on_the_prefix_of_the_layout(conversion, arrays):
    partial = {n: x for n, x in arrays.items() if not n.endswith("layer.1.output.dense.weight")}
    conversion.write("a.safetensors", partial)
    with pytest.raises(ValueError, match="missing: [^(]*output.dense.weight$"):
        conversion("a.safetensors", "b.safetensors")


def test_names_outside_of_the_wrapping_are_refused_by_name(conversion, tmp_path, arrays):
    state = {**tensors(arrays, "model."), "criterion.weight": torch.ones(5)}
    torch.save({"state_dict": state}, tmp_path / "a.ckpt")
    with pytest.raises(
        ValueError, match="all names but criterion.weight begin with 'model.': save"
    ):
        conversion("a.ckpt", "b.safetensors")


def test_paddles_own_names_are_unwrapped_on_the_way_back(conversion, expected, arrays):
    conversion.write("w.pdparams", {f"_layers.{name}": a for name, a in expected.items()})
    conversion("w.pdparams", "back.safetensors", reverse=True)
    assert set(conversion.read("back.safetensors")) == set(arrays)


def test_a_nested_pdparams_goes_back(conversion, expected, arrays):
    path = conversion.folder / "run.pdparams"
    state = {name: (name, np.array(array)) for name, array in expected.items()}
    content = {"net": state, "best": np.float64(0.3), "epoch": 3, "names": np.array(["a", "b"])}
    path.write_bytes(pickle.dumps(content, 4))
    made = conversion(path, "back.safetensors", reverse=True)
    assert "run.pdparams: the state dict under the key 'net' is used" in made.notes
    back = conversion.read("back.safetensors")
    assert set(back) == set(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(back[name], array)


def test_numpys_numbers_and_arrays_beside_the_weights_are_no_obstacle(converted, tmp_path, arrays):
    beside = {"metric": np.float64(0.9), "step": np.int64(3), "ok": np.bool_(True)}
    beside |= {"classes": np.array(["cat", "dog"]), "name": np.str_("x"), "o": np.array([None])}
    torch.save({"model": tensors(arrays), **beside}, tmp_path / "a.pth")
    converted("a.pth")
    torch.save({"model": dict(arrays), **beside}, tmp_path / "b.pth")  # as some write weights, too
    converted("b.pth")


def test_objects_are_refused_with_a_way_out(conversion, tmp_path, arrays):
    torch.save({"state_dict": tensors(arrays), "hparams": Path("data")}, tmp_path / "a.ckpt")
    with pytest.raises(
        ValueError, match="asks for pathlib.PosixPath; .* save the state dict alone"
    ):
        conversion("a.ckpt", "b.safetensors")


def test_a_tensor_that_is_stored_once_has_all_its_names(converted, conversion, tmp_path, arrays):
    words = torch.nn.Embedding(7, 3)
    tied = torch.nn.ModuleDict({"words": words, "head": torch.nn.Linear(3, 7, bias=False)})
    tied["head"].weight = words.weight
    safetensors.torch.save_model(tied, str(tmp_path / "tied.safetensors"))
    found = open_source(tmp_path / "tied.safetensors")
    assert set(found.tensors) == {"words.weight", "head.weight"}
    for name in found.tensors:
        np.testing.assert_array_equal(found.tensors[name], words.weight.detach().numpy())

    kept, name = "cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"
    once = {f"model.{kept if n == name else n}": array for n, array in arrays.items()}
    twins = {f"model.{name}": f"model.{kept}", "format": "pt"}
    write_tensors(tmp_path / "a.safetensors", once, twins)
    assert f"'model.{name}' is stored once, as 'model.{kept}'" in converted("a.safetensors")


def test_the_content_says_what_a_file_is(converted, tmp_path, arrays):
    safetensors.torch.save_file(tensors(arrays), tmp_path / "a.bin")
    torch.save(tensors(arrays), tmp_path / "b.model")
    torch.save(tensors(arrays), tmp_path / "weights", _use_new_zipfile_serialization=False)
    for name in ("a.bin", "b.model", "weights"):
        converted(name)


@pytest.mark.parametrize("name", ["a.bin", "a.ckpt", "a.safetensors", "a.pdparams", "a"])
@pytest.mark.parametrize(
    "content", [POINTER, b"\xef\xbb\xbf\n<!DOCTYPE html><title>Sign in</title>"]
)
def test_what_is_no_file_of_weights_is_named(conversion, tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=f"{name}: is a Git LFS pointer or a web page"):
        conversion(name, "x.safetensors")


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_a_training_reads_the_same_files(tmp_path, arrays, expected, hf_config, name):
    folder = tmp_path / "hf"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(hf_config))
    if name.endswith(".bin"):
        torch.save({"net": tensors(arrays, "model.")}, folder / name)
    else:
        write_tensors(folder / name, {f"model.{n}": a for n, a in arrays.items()})
    source = open_source(folder)
    assert set(read_as_paddle(source, "bert_base")) == set(expected)
    assert f"{name}: every name begins with 'model.': stripped" in source.notes
    (folder / name).write_bytes(POINTER)
    for read in (open_source, lambda place: read_for_model(place, "bert_base", {})):
        with pytest.raises(ValueError, match="is a Git LFS pointer"):
            read(folder)


def test_the_layout_of_a_wrapped_image_model_is_found(tmp_path, toy):
    state = tensors(toy("deit_timm").arrays, "net.module.")
    torch.save({"state_dict": state}, tmp_path / "a.ckpt")
    shapes = {"cls_token": (1, 1, 12)}
    with pytest.raises(ValueError, match="has what the model lacks"):  # found, and compared
        read_for_model(tmp_path / "a.ckpt", "deit_tiny", shapes)
