"""Records of model options: what is refused, and how flat options are sorted and built."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from sot_paddle.command_line import parse
from sot_paddle.config import (
    EncoderConfig,
    HeadConfig,
    build_record,
    load_yaml,
    sort_options,
)
from sot_paddle.tasks.image_options import ImageTrainConfig
from sot_paddle.vision_config import SwinConfig, ViTConfig


@dataclasses.dataclass(frozen=True)
class Options:
    """One field of each kind of annotation."""

    rate: float = 0.5
    count: int = 3
    flag: bool = False
    name: str = "a"
    limit: float | None = None
    sizes: tuple[int, ...] = ()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "nan"),
        ({"mask_padding": True}, "zero"),
        ({"on_zero": "zero"}, "zero"),
        ({"mask_padding": True, "on_zero": "nan"}, "nan"),
    ],
)
def test_zero_rule_follows_mask_padding_unless_set(options: dict, expected: str) -> None:
    assert HeadConfig(**options).resolved_on_zero == expected


REFUSED = [
    (HeadConfig, {"pooling": "mgcp"}, "pooling must be one of mgcrp_qk, mgcrp, .*got 'mgcp'"),
    (HeadConfig, {"normalization": "mpn"}, "of pooling 'mgcrp' must be one of svpn"),
    (HeadConfig, {"pooling": "gap", "normalization": "none"}, "cannot be set .*got 'none'"),
    (HeadConfig, {"pooling": "gcp", "vec": "triu"}, "vec 'triu' is an option of .*leave it at"),
    (HeadConfig, {"alpha": 0.0}, "alpha: Input should be greater than 0, got 0.0"),
    (HeadConfig, {"alpha": 1.5}, "alpha: Input should be less than or equal to 1, got 1.5"),
    (HeadConfig, {"head_dropout": 1.0}, "head_dropout: Input should be less than 1, got 1.0"),
    (HeadConfig, {"num_sv": 0}, "num_sv: .* greater than or equal to 1, got 0"),
    (EncoderConfig, {"hidden_act": "swish"}, "hidden_act must be one of .*silu.*swish"),
    (EncoderConfig, {"hidden_size": 10, "num_attention_heads": 4}, "a multiple.*got 10 and 4"),
    (EncoderConfig, {"pad_token_id": 30522}, r"pad_token_id must be in \[0, vocab_size\), got 305"),
    (ViTConfig, {"img_size": "wide"}, "img_size: .* should be a valid integer.* got 'wide'"),
    (ViTConfig, {"token_type": "Patch"}, "token_type must be one of .* did you mean patch"),
    (ViTConfig, {"mlp_ratio": float("inf")}, "mlp_ratio: Input should be a finite number, got inf"),
    (SwinConfig, {"depths": []}, r"one entry for each of 1 to 16 stages, got \(\) and"),
    (Options, {"rte": 1.0}, "unknown option 'rte'; did you mean rate"),
    (Options, {"zzz": 1.0}, "unknown option 'zzz'; known: count, flag, limit, name, rate, sizes"),
    (Options, {"rate": "fast"}, "rate: .* should be a valid number.* got 'fast'"),
    (Options, {"count": 2.5}, "count: .* valid integer.* got 2.5"),
    (Options, {"flag": "maybe"}, "flag: .* valid boolean.* got 'maybe'"),
    (Options, {"sizes": 1}, "sizes: .* valid tuple, got 1"),
]


@pytest.mark.parametrize(("record", "options", "message"), REFUSED)
def test_refusals_name_the_option_and_where_it_stands(record, options, message) -> None:
    with pytest.raises(ValueError, match=f"^run.yaml: .*{message}") as refused:
        build_record(record, options, where="run.yaml")
    assert "\n" not in str(refused.value)


def test_options_of_a_model_that_are_no_mapping_are_refused_by_file(tmp_path: Path) -> None:
    (tmp_path / "o.yaml").write_text("model_options: 5\n")
    words = ["digits", "--config", str(tmp_path / "o.yaml"), "--set", "depth=3"]
    with pytest.raises(ValueError, match="o.yaml: model_options: .*dictionary, got 5"):
        parse(ImageTrainConfig, words)


def test_a_record_is_built_of_whatever_has_the_meaning_of_its_types() -> None:
    values = {"rate": "1e-5", "limit": 2, "flag": True, "sizes": [1, 2]}
    record = build_record(Options, values)  # YAML reads 1e-5 as text
    assert record == Options(rate=1e-5, limit=2.0, flag=True, sizes=(1, 2))
    assert isinstance(record.limit, float)
    assert build_record(Options, {"limit": None}) == build_record(Options, {}) == Options()
    swin = {"depths": [1, 2], "num_heads": [3, 6], "mlp_ratio": 3}
    assert hash(build_record(SwinConfig, swin)) == hash(
        SwinConfig(depths=(1, 2), num_heads=(3, 6), mlp_ratio=3.0)
    )


def test_options_go_to_the_record_that_has_them() -> None:
    options = {"embed_dim": 8, "num_heads": 2, "wr_dim": 5, "qkv_bias": True, "alpha": 1}
    backbone, head = sort_options(ViTConfig, options, where="x")
    assert (backbone.embed_dim, backbone.num_heads, backbone.qkv_bias) == (8, 2, True)
    assert (head.wr_dim, head.alpha, head.qkv_bias) == (5, 1.0, False)
    backbone, head = sort_options(SwinConfig, {"head_qkv_bias": True, "qkv_bias": False}, where="x")
    assert (backbone.qkv_bias, head.qkv_bias) == (False, True)
    assert len(options) == 5
    for record in (ViTConfig, SwinConfig):
        with pytest.raises(ValueError, match="unknown option 'windowsize' for m"):
            sort_options(record, {"windowsize": 7}, where="m")


def test_a_yaml_file_holds_a_mapping_and_its_refusals_name_it(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("a: 1\nb: {c: [1.0e-5, x]}\nd: ~\n")
    assert load_yaml(path) == load_yaml(str(path)) == {"a": 1, "b": {"c": [1e-5, "x"]}, "d": None}
    path.write_text("# nothing\n")
    assert load_yaml(path) == {}
    for text, message in (
        (b"a: 1\nb: 2\na: 3\n", "key given twice: a"),
        (b"- a\n- b\n", "must hold a mapping of options, got list"),
        (b"a: [1\n", "is not valid YAML"),
        (b"a: !!python/object/apply:os.getcwd []\n", "is not valid YAML"),
        (b"a: \xff\n", "line 1: expected UTF-8 text, found byte 0xff"),
    ):
        path.write_bytes(text)
        with pytest.raises(ValueError, match=message) as caught:
            load_yaml(path)
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="cannot read .*no.yaml: No such file"):
        load_yaml(tmp_path / "no.yaml")
