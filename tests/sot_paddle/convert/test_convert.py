"""Files and directories there and back: bits, dtypes, config, vocabulary, manifest, atomicity."""

import contextlib
import errno
import hashlib
import io
import itertools
import json
import os
import shutil
import warnings
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch

import sot_torch_ref  # noqa: F401 (makes transformers importable beside a CPU torch)
from sot_paddle.checkpoint import read_tensors, unpack_files, write_tensors
from sot_paddle.convert import convert_file
from sot_paddle.convert.formats import torch_files
from tests.sot_paddle.convert.converted import Conversion, assert_same_file

VOCAB = {"vocab.txt": b"[PAD]\n[UNK]\n\xc3\xa9\n", "tokenizer_config.json": b"{}"}


@pytest.fixture
def conversion(tmp_path) -> Conversion:
    """Of a plain BERT."""
    return Conversion(tmp_path, "bert_hf", "bert_base")


@pytest.fixture
def official(tmp_path) -> Conversion:
    """Of the original text release."""
    return Conversion(tmp_path, "sot_nlp_official", "bert_base_mgcrp")


@pytest.fixture
def hf_arrays(toy):
    return toy("bert_hf").arrays


@pytest.fixture
def hf_dir(tmp_path, toy, hf_config):
    """A Hugging Face directory of the tiny BERT with a classifier."""
    folder = tmp_path / "hf"
    folder.mkdir()
    shutil.copy(toy("bert_hf").path, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(hf_config))
    for name, content in VOCAB.items():
        (folder / name).write_bytes(content)
    return folder


@pytest.mark.parametrize("suffix", [".safetensors", ".pdparams", ""])
def test_directory_there_and_back_needs_nothing_but_the_file(
    conversion, tmp_path, hf_dir, hf_arrays, hf_config, suffix
):
    there, back = tmp_path / f"there{suffix}", tmp_path / "back"
    conversion(hf_dir, there)
    manifest = there / "manifest.json" if not suffix else Path(f"{there}.manifest.json")
    manifest.unlink()
    for path in hf_dir.iterdir():
        path.unlink()
    made = conversion(there, back, reverse=True)
    assert_same_file(back / "model.safetensors", hf_arrays)
    assert made.num_attention_heads == 3
    assert made.notes == ()
    for name, content in VOCAB.items():
        assert (back / name).read_bytes() == content
    config = json.loads((back / "config.json").read_text())
    assert hf_config.items() <= config.items()
    assert config["architectures"] == ["BertForSequenceClassification"]
    assert config["torch_dtype"] == "float32"
    assert config["num_labels"] == 5


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "float32"])
@pytest.mark.parametrize("suffix", [".safetensors", ".pdparams"])
def test_every_dtype_survives(official, official_shapes, random_arrays, dtype, suffix):
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    arrays = {
        name: array.astype(kind) if array.ndim else np.zeros((), np.int64)
        for name, array in random_arrays(official_shapes).items()
    }
    official.write("a.safetensors", arrays)
    official("a.safetensors", f"there{suffix}")
    assert {str(array.dtype) for array in official.read(f"there{suffix}").values()} == {dtype}
    official(f"there{suffix}", "back.safetensors", reverse=True)
    assert_same_file(official.folder / "back.safetensors", arrays)


def test_dtype_changes_only_when_asked_and_only_floats(official, official_shapes, random_arrays):
    arrays = random_arrays(official_shapes)
    official.write("a.safetensors", arrays)
    official("a.safetensors", "b.safetensors", dtype="float64")
    official("b.safetensors", "back.safetensors", reverse=True, dtype="float32")
    assert_same_file(
        official.folder / "back.safetensors",
        {k: a if a.ndim else np.zeros((), np.int64) for k, a in arrays.items()},
    )
    arrays["bert.pooler.cls_fc.bias"][0] = 1e6
    official.write("big.safetensors", arrays)
    with pytest.raises(ValueError, match="'head.cls_fc.bias' holds numbers too large for float16"):
        official("big.safetensors", "c.safetensors", dtype="float16")
    assert not (official.folder / "c.safetensors").exists()


def test_manifest_and_metadata_say_what_was_done(conversion, tmp_path, hf_dir, hf_arrays):
    there = tmp_path / "there.safetensors"
    calls = []
    conversion.model = "bert_base_mgcrp"
    made = conversion(hf_dir, there, progress=lambda *args: calls.append(args))
    content = json.loads(Path(f"{there}.manifest.json").read_text())
    tensors, metadata = read_tensors(there)
    assert {record["destination"] for record in content["tensors"]} == set(tensors)
    for record in content["tensors"]:
        array = tensors[record["destination"]]
        assert record["sha256"] == hashlib.sha256(array.tobytes()).hexdigest()
        assert record["shape"] == list(array.shape)
        assert record["dtype"] == str(array.dtype)
        source = hf_arrays[record["source"]]
        assert record["source_shape"] == list(source.shape)
        expected = source.T if record["transform"] == "transpose" else source
        np.testing.assert_array_equal(array, expected)
    assert len(content["ignored"]) == 4
    assert len(content["absent"]) == 15
    assert {"head.pooling.q_proj.weight", "head.word_fc.bias"} < set(content["absent"])
    assert metadata["sot_paddle"] == "1"
    assert metadata["layout"] == "bert_hf"
    assert metadata["model"] == "bert_base_mgcrp"
    assert metadata["head"] == "mgcrp_qk"
    assert metadata["source_prefix"] == "bert."
    assert metadata["num_attention_heads"] == "3"
    assert json.loads(metadata["absent"]) == content["absent"]
    assert json.loads(metadata["ignored"]) == content["ignored"]
    assert json.loads(metadata["config"])["hidden_size"] == 12
    assert unpack_files(metadata["vocabulary"]) == VOCAB
    total = sum(tensor.nbytes for tensor in tensors.values())
    assert calls[-1][:2] == (total, total)
    assert [done for done, _, _ in calls] == sorted({done for done, _, _ in calls})
    assert "ignored: classifier.weight (" in made.summary()


@pytest.mark.parametrize("prefix", ["bert.", ""])
def test_prefix_of_a_headless_source_comes_back(conversion, hf_shapes, random_arrays, prefix):
    arrays = random_arrays(hf_shapes(prefix, classifier=False))
    conversion.write("a.safetensors", arrays)
    conversion("a.safetensors", "there.safetensors")
    conversion("there.safetensors", "b.safetensors", reverse=True)
    assert_same_file(conversion.folder / "b.safetensors", arrays)
    conversion("there.safetensors", "dir", reverse=True, num_attention_heads=4)
    assert_same_file(conversion.folder / "dir" / "model.safetensors", arrays)


def test_shards_are_joined_and_checked(conversion, tmp_path, hf_dir, hf_arrays):
    names = sorted(hf_arrays)
    first = {name: hf_arrays[name] for name in names[:9]}
    second = {name: hf_arrays[name] for name in names[9:]}
    (hf_dir / "model.safetensors").unlink()
    write_tensors(hf_dir / "model-1.safetensors", first)
    write_tensors(hf_dir / "model-2.safetensors", second)
    placed = dict.fromkeys(first, "model-1.safetensors")
    placed |= dict.fromkeys(second, "model-2.safetensors")
    index = hf_dir / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": placed}))
    conversion(hf_dir, "there.safetensors")
    conversion("there.safetensors", "back", reverse=True)
    assert_same_file(tmp_path / "back" / "model.safetensors", hf_arrays)

    for change, message in (
        ({names[0]: "model-2.safetensors"}, "missing from|not in the index but in"),
        ({names[0]: "gone.safetensors"}, "the shard 'gone.safetensors' is not beside it"),
        ({names[0]: "../model-1.safetensors"}, "the shard '../model-1.safetensors' is not"),
        ({"extra": "model-1.safetensors"}, "'extra' is missing from model-1.safetensors"),
    ):
        index.write_text(json.dumps({"weight_map": {**placed, **change}}))
        with pytest.raises(ValueError, match=message):
            conversion(hf_dir, "again.safetensors")
    index.write_text("[]")
    with pytest.raises(ValueError, match="expected a JSON object, got a list"):
        conversion(hf_dir, "again.safetensors")


@pytest.mark.parametrize(("key", "name"), [("", "pytorch_model.bin"), ("state_dict", "x.pth")])
def test_torch_files_there_and_back(conversion, tmp_path, hf_arrays, key, name):
    state = {k: torch.tensor(a).to(torch.bfloat16) for k, a in hf_arrays.items()}
    torch.save({key: state, "epoch": 3} if key else state, tmp_path / name)
    made = conversion(name, "there.safetensors")
    assert any(f"under the key {key!r}" in note for note in made.notes) == bool(key)
    for back in ("back.bin", "back.pth"):
        conversion("there.safetensors", back, reverse=True)
        returned = torch.load(tmp_path / back, weights_only=True)
        assert set(returned) == set(state)
        for k, tensor in state.items():
            assert returned[k].dtype == torch.bfloat16
            assert torch.equal(returned[k], tensor), k
            assert returned[k].is_contiguous()


def test_bad_torch_files_are_refused(conversion, tmp_path):
    (tmp_path / "empty.bin").write_bytes(b"")
    (tmp_path / "text.bin").write_bytes(b"hello")
    torch.save({"w": torch.ones(2), "epoch": 3}, tmp_path / "mixed.bin")
    torch.save({"model": {"w": 1}, "state_dict": {}, "epoch": 3}, tmp_path / "none.bin")
    torch.save([torch.ones(2)], tmp_path / "list.bin")
    for name, message in (
        ("empty", "not a PyTorch file of weights only"),
        ("text", "not a PyTorch file of weights only"),
        ("mixed", "unmapped: w; missing: embeddings.word_embeddings.weight"),
        ("none", r"no entry holds tensors of weights; it holds model \(dict\), state_dict \(d"),
        ("list", "expected a dict of tensors, got list"),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch speaks of old formats
            with pytest.raises(ValueError, match=message):
                conversion(f"{name}.bin", "x.safetensors")
    assert not (tmp_path / "x.safetensors").exists()


def test_another_number_of_heads_than_the_source_states_is_refused(conversion, hf_dir, tmp_path):
    with pytest.raises(ValueError, match="attention-heads 4: the source itself says 3; leave the"):
        conversion(hf_dir, tmp_path / "there", num_attention_heads=4)
    assert not (tmp_path / "there").exists()
    conversion(hf_dir, tmp_path / "there", num_attention_heads=3)


def test_what_a_source_does_not_state_is_said_and_not_filled_in(conversion, tmp_path, hf_arrays):
    conversion.write("a.safetensors", hf_arrays, {})
    made = conversion("a.safetensors", "b.safetensors")
    assert made.num_attention_heads is None
    assert any("does not state hidden_act and layer_norm_eps" in note for note in made.notes)
    config = json.loads(read_tensors(tmp_path / "b.safetensors")[1]["config"])
    assert not {"hidden_act", "layer_norm_eps", "pad_token_id"} & set(config)
    assert "attention heads is unknown" in made.summary()
    with pytest.raises(ValueError, match="hidden size 12 is no multiple of 64; state it with"):
        conversion("b.safetensors", "c", reverse=True)
    with pytest.raises(ValueError, match="5 attention heads do not divide the hidden size 12"):
        conversion("b.safetensors", "c", reverse=True, num_attention_heads=5)
    made = conversion("b.safetensors", "c", reverse=True, num_attention_heads=4)
    assert json.loads((tmp_path / "c" / "config.json").read_text())["num_attention_heads"] == 4
    assert "no vocabulary found" in made.summary()


def test_sixty_four_channels_a_head_are_assumed_with_a_note(conversion, hf_shapes, random_arrays):
    wide = {
        name: tuple(128 if n == 12 else n for n in shape) for name, shape in hf_shapes().items()
    }
    conversion.write("a.safetensors", random_arrays(wide))
    conversion("a.safetensors", "b.pdparams")
    made = conversion("b.pdparams", "c", reverse=True)
    assert made.num_attention_heads == 2
    assert "2 assumed (64 channels each)" in made.summary()


def test_a_vocabulary_can_be_given(conversion, tmp_path, hf_dir, hf_arrays):
    conversion.write("a.safetensors", hf_arrays)
    conversion("a.safetensors", "b.safetensors", vocab=hf_dir)
    options = {"reverse": True, "num_attention_heads": 3}
    conversion("b.safetensors", "c", **options)
    assert (tmp_path / "c" / "vocab.txt").read_bytes() == VOCAB["vocab.txt"]
    with pytest.raises(ValueError, match="no tokenizer files such as vocab.txt"):
        conversion("b.safetensors", "d", vocab=tmp_path, **options)


def test_wrong_sources_are_refused(conversion, tmp_path, hf_dir):
    there = tmp_path / "there.safetensors"
    conversion(hf_dir, there)
    (tmp_path / "bare").mkdir()
    (tmp_path / "a.npz").write_bytes(b"")
    (tmp_path / "a.bin").write_bytes(b"")
    conversion.write("none.safetensors", {})
    conversion.write("a.pdparams", {"w": np.ones(1)})
    for source, reverse, message in (
        (tmp_path / "gone", False, "no such file or directory"),
        (tmp_path / "bare", False, "no weights; expected one of model.safetensors, "),
        (tmp_path / "a.npz", False, "got '.npz'"),
        (tmp_path / "none.safetensors", False, "holds no tensor"),
        (there, False, "is a converted file already; add --reverse"),
        (tmp_path / "a.pdparams", False, "is a Paddle file; add --reverse"),
        (hf_dir, True, "drop --reverse"),
    ):
        with pytest.raises(ValueError, match=message):
            conversion(source, "x.safetensors", reverse=reverse)
    assert not (tmp_path / "x.safetensors").exists()


def test_what_exists_is_not_overwritten_unless_asked(conversion, tmp_path, hf_dir):
    there, folder = tmp_path / "there.safetensors", tmp_path / "folder"
    for dst in (there, folder):
        conversion(hf_dir, dst)
        with pytest.raises(ValueError, match="--overwrite replaces"):
            conversion(hf_dir, dst)
        conversion(hf_dir, dst, overwrite=True)
    (folder / "thesis.tex").write_text("precious")
    with pytest.raises(ValueError, match="holds files of its own .thesis.tex."):
        conversion(hf_dir, folder, overwrite=True)
    with pytest.raises(ValueError, match="is what is being converted"):
        conversion(hf_dir, hf_dir, overwrite=True)
    with pytest.raises(ValueError, match="is what is being converted"):
        conversion(there, there, reverse=True, overwrite=True)
    with pytest.raises(ValueError, match="does not exist; make it first"):
        conversion(hf_dir, "no/x.safetensors")
    with pytest.raises(ValueError, match="or a directory .a name without a suffix., got '.npz'"):
        conversion(hf_dir, "x.npz")
    (tmp_path / "plain").write_text("precious")
    with pytest.raises(ValueError, match="plain: is a file; choose another"):
        conversion(hf_dir, "plain", overwrite=True)
    (tmp_path / "empty").mkdir()
    conversion(hf_dir, "empty")
    convert_file(hf_dir, f"{tmp_path / 'v1.5'}/", "bert_hf", "bert_base")
    assert (tmp_path / "v1.5" / "config.json").is_file()


def test_the_real_checkpoint_comes_back_bit_equal_with_its_tokenizer(
    conversion, tmp_path, real_checkpoint
):
    there, back = tmp_path / "there.safetensors", tmp_path / "back"
    made = conversion(real_checkpoint, there)
    assert made.plan.absent == ("head.cls_fc.weight", "head.cls_fc.bias")
    assert set(made.plan.ignored) == {"embeddings.position_ids"}
    Path(f"{there}.manifest.json").unlink()
    made = conversion(there, back, reverse=True)
    assert (made.plan.depth, made.num_attention_heads, made.notes) == (6, 12, ())
    original, _ = read_tensors(real_checkpoint / "model.safetensors")
    kept = {name: original[name] for name in original if name not in {"embeddings.position_ids"}}
    assert_same_file(back / "model.safetensors", kept)

    transformers = pytest.importorskip("transformers")
    ours = transformers.AutoTokenizer.from_pretrained(back)
    theirs = transformers.AutoTokenizer.from_pretrained(real_checkpoint)
    text = "A naïve café — unaffable?"
    assert ours(text)["input_ids"] == theirs(text)["input_ids"]


def test_a_classifier_comes_back_as_transformers_wants_it(
    conversion, tmp_path, hf_shapes, random_arrays
):
    transformers = pytest.importorskip("transformers")
    arrays = random_arrays(hf_shapes("", classifier=False))
    arrays |= random_arrays({"classifier.weight": (5, 12), "classifier.bias": (5,)})
    conversion.write("a.safetensors", arrays)  # transformers itself cannot load this mix
    conversion("a.safetensors", "b.safetensors", num_attention_heads=3)
    conversion("b.safetensors", "back", reverse=True)
    model, info = transformers.BertForSequenceClassification.from_pretrained(
        tmp_path / "back", output_loading_info=True
    )
    assert not any(info.values()), info
    assert model.config.num_labels == 5
    state = model.state_dict()
    for name, array in arrays.items():
        key = name if name.startswith("classifier") else f"bert.{name}"
        np.testing.assert_array_equal(state[key].numpy(), array, err_msg=name)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "roberta"}, "expected model_type 'bert', got 'roberta'"),
        ({"hidden_act": "gelu_fast"}, "expected hidden_act 'gelu' or 'gelu_new' .*'gelu_fast'"),
        ({"position_embedding_type": "relative_key"}, "expected position_embedding_type 'absol"),
    ],
)
def test_options_that_no_model_has_are_refused(conversion, hf_dir, hf_config, change, message):
    (hf_dir / "config.json").write_text(json.dumps({**hf_config, **change}))
    with pytest.raises(ValueError, match=message):
        conversion(hf_dir, "there.safetensors")


@pytest.mark.parametrize("old", [False, True], ids=["new", "overwritten"])
@pytest.mark.parametrize("name", ["x.safetensors", "x.bin", "folder"])
def test_a_full_disk_at_any_write_leaves_what_was_there(tmp_path, hf_dir, monkeypatch, name, old):
    """Space that runs out when a file is flushed: the weights, the manifest, the folder."""
    there, out = tmp_path / "there.safetensors", tmp_path / "out"
    convert_file(hf_dir, there, "bert_hf", "bert_base")
    out.mkdir()
    options = {"reverse": True, "overwrite": old}
    if old:
        convert_file(there, out / name, "bert_hf", "bert_base", reverse=True, dtype="float16")
    before, flush = _files(out), os.fsync
    for count in range(1, 20):
        calls = itertools.count(1)

        def full(descriptor, calls=calls, count=count):
            if next(calls) == count:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            flush(descriptor)

        done = []
        with monkeypatch.context() as patch, contextlib.suppress(OSError):
            patch.setattr(os, "fsync", full)
            done.append(convert_file(there, out / name, "bert_hf", "bert_base", **options))
        after = _files(out)
        if done or after != before:  # all is there; the last one flushes the folder's entries
            break
    changed = [name for name in after if after[name] != before.get(name)]
    assert count > 3
    assert any(name.endswith("manifest.json") for name in changed)
    assert any(name.endswith((".safetensors", ".bin")) for name in changed)


def test_a_torch_file_that_a_full_disk_refuses_says_so():
    class Full(io.BytesIO):
        def write(self, content):
            if self.tell() > 1000:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return super().write(content)

    with pytest.raises(OSError, match="No space left on device"):
        torch_files.save(torch, {"a": torch.zeros(100_000)}, Full())


def _files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
