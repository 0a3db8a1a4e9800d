"""The round trip: there and back must be bit-equal, and one flipped bit must show."""

import json

import numpy as np
import pytest

from align.port import round_trip as conversion
from align.port.round_trip import round_trip
from sot_paddle.checkpoint import read_tensors, write_tensors

WIDE, INNER = 8, 12
BACK = "back/model.safetensors"


@pytest.fixture
def source(tmp_path):
    """A one-layer BERT in the Hugging Face layout, with -0.0 and a denormal number."""
    rng = np.random.default_rng(0)
    shapes = {
        "embeddings.word_embeddings.weight": (11, WIDE),
        "embeddings.position_embeddings.weight": (7, WIDE),
        "embeddings.token_type_embeddings.weight": (2, WIDE),
        "embeddings.LayerNorm.weight": (WIDE,),
        "embeddings.LayerNorm.bias": (WIDE,),
        "pooler.dense.weight": (WIDE, WIDE),
        "pooler.dense.bias": (WIDE,),
    }
    for name, out, into in (
        ("attention.self.query", WIDE, WIDE),
        ("attention.self.key", WIDE, WIDE),
        ("attention.self.value", WIDE, WIDE),
        ("attention.output.dense", WIDE, WIDE),
        ("intermediate.dense", INNER, WIDE),
        ("output.dense", WIDE, INNER),
    ):
        prefix = f"encoder.layer.0.{name}"
        shapes |= {f"{prefix}.weight": (out, into), f"{prefix}.bias": (out,)}
    for name in ("attention.output.LayerNorm", "output.LayerNorm"):
        shapes |= {f"encoder.layer.0.{name}.{kind}": (WIDE,) for kind in ("weight", "bias")}
    tensors = {name: rng.normal(size=shape).astype("float32") for name, shape in shapes.items()}
    tensors["embeddings.LayerNorm.bias"][:2] = (-0.0, 1e-42)
    tensors["embeddings.position_ids"] = np.arange(7)[None]
    folder = tmp_path / "source"
    folder.mkdir()
    write_tensors(folder / "model.safetensors", tensors)
    config = {
        "model_type": "bert",
        "hidden_size": WIDE,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": INNER,
        "vocab_size": 11,
        "max_position_embeddings": 7,
        "type_vocab_size": 2,
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


@pytest.fixture
def damaged_return(monkeypatch):
    """Let the way back be followed by a change of the tensors that it wrote."""

    def install(change):
        convert = conversion.convert_file

        def faulty(src, dst, *rest, reverse=False, **options):
            convert(src, dst, *rest, reverse=reverse, **options)
            if reverse:
                tensors, metadata = read_tensors(dst / "model.safetensors")
                tensors = {name: np.array(value) for name, value in tensors.items()}
                change(tensors)
                for manifest in dst.glob("*manifest.json"):  # it would tell
                    manifest.unlink()
                write_tensors(dst / "model.safetensors", tensors, metadata)

        monkeypatch.setattr(conversion, "convert_file", faulty)

    return install


def test_an_undamaged_round_trip_is_bit_equal_in_every_tensor(source, tmp_path):
    converted, tensors, differing = round_trip(source, tmp_path / "out")
    assert (tensors, differing) == (7 + 12 + 4, 0)  # position_ids is no weight
    assert converted == tmp_path / "out" / "converted"
    weight, _ = read_tensors(converted / "model.safetensors")
    query = weight["bert.encoder.layers.0.self_attn.q_proj.weight"]
    original, _ = read_tensors(source / "model.safetensors")
    np.testing.assert_array_equal(query, original["encoder.layer.0.attention.self.query.weight"].T)


def flip_lowest_bit(tensors):
    tensors["encoder.layer.0.output.dense.weight"].view(np.uint32)[3, 5] ^= 1


def lose_the_sign_of_zero(tensors):
    tensors["embeddings.LayerNorm.bias"][0] = 0.0


def another_denormal(tensors):
    tensors["embeddings.LayerNorm.bias"].view(np.uint32)[1] ^= 1


def another_dtype(tensors):
    name = "pooler.dense.bias"
    tensors[name] = tensors[name].view("int32")  # the same bytes


def lose_one(tensors):
    del tensors["pooler.dense.weight"]


def add_one(tensors):
    tensors["something.else"] = np.ones(1, "float32")


@pytest.mark.parametrize(
    "change",
    [flip_lowest_bit, lose_the_sign_of_zero, another_denormal, another_dtype, lose_one, add_one],
)
def test_each_damage_counts_as_one_differing_tensor(source, tmp_path, damaged_return, change):
    damaged_return(change)
    assert round_trip(source, tmp_path / "out")[2] == 1


def test_an_earlier_result_is_replaced(source, tmp_path):
    old = tmp_path / "out" / "converted" / "left_over.txt"
    old.parent.mkdir(parents=True)
    old.write_text("old", encoding="utf-8")
    assert round_trip(source, tmp_path / "out")[2] == 0
    assert not old.exists()
