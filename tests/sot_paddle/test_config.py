"""Strict options: unknown keys, wrong types and values out of range are refused by name."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from sot_paddle import config
from sot_paddle.config import EncoderConfig, HeadConfig, build_record, load_yaml, near_names


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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pooling": "mgcp"}, "pooling must be one of mgcrp_qk, mgcrp, .*got 'mgcp'"),
        ({"fusion": "sum"}, "fusion must be one of sum_fc, .*got 'sum'"),
        ({"normalization": "mpn"}, "normalization of pooling 'mgcrp' must be one of svpn"),
        (
            {"pooling": "mgcrp_qk", "normalization": "ln"},
            "'mgcrp_qk' must be one of svpn, epn, none, got 'ln'",
        ),
        ({"pooling": "gcp", "normalization": "svpn"}, "'gcp' must be one of mpn, got 'svpn'"),
        ({"pooling": "gap", "normalization": "none"}, "cannot be set .*got 'none'"),
        ({"pooling": "pooler", "normalization": "svpn"}, "pooling 'pooler' cannot be set"),
        ({"pooling": "mgcrp_qk", "normalization": "mpn"}, "normalization of pooling 'mgcrp_qk'"),
        ({"pooling": "gcp_text", "normalization": "epn"}, "normalization of pooling 'gcp_text'"),
        ({"pooling": "mgcrp", "vec": "upper"}, "vec must be one of full, triu, got 'upper'"),
        ({"pooling": "mgcrp_qk", "vec": "triu"}, "an option of pooling mgcrp and gcp_text, got .*"),
        ({"pooling": "gcp", "vec": "triu"}, "vec 'triu' is an option of .*leave it at 'full'"),
        ({"start": "ones"}, "start must be one of learn, one"),
        ({"centering": "none"}, "centering must be one of scalar, channel"),
        ({"covariance_scale": "true"}, "covariance_scale must be one of"),
        ({"on_zero": "floor"}, "on_zero must be one of nan, zero"),
        ({"alpha": 0.0}, r"alpha must be in \(0, 1\], got 0.0"),
        ({"alpha": 1.5}, "alpha must be in"),
        ({"head_dropout": 1.0}, r"head_dropout must be in \[0, 1\), got 1.0"),
        ({"head_dropout": -0.1}, "head_dropout must be in"),
        *(
            ({name: 0}, f"{name} must be at least 1, got 0")
            for name in ("q_dim", "k_dim", "head_num_heads", "wr_dim", "qkv_dim")
        ),
        *(({name: 0}, f"{name} must be at least 1") for name in ("num_iter", "num_sv", "mpn_iter")),
    ],
)
def test_head_refusals(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HeadConfig(**options)


@pytest.mark.parametrize("pooling", sorted(config.NORMALIZATIONS))
def test_every_listed_normalization_is_accepted(pooling: str) -> None:
    for name in config.NORMALIZATIONS[pooling]:
        assert HeadConfig(pooling=pooling, normalization=name).normalization == name


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden_act": "swish"}, "hidden_act must be one of .*silu.*swish"),
        ({"layer_norm_eps": 2e-3}, "layer_norm_eps must be at most 0.001.*got 0.002"),
        ({"hidden_size": 10, "num_attention_heads": 4}, "must be a multiple.*got 10 and 4"),
        ({"vocab_size": 0}, "vocab_size must be at least 1"),
        ({"num_hidden_layers": 0}, "num_hidden_layers must be at least 1"),
        ({"pad_token_id": 30522}, r"pad_token_id must be in \[0, vocab_size\), got 30522"),
        ({"pad_token_id": -1}, "pad_token_id must be in"),
        ({"hidden_dropout_prob": 1.0}, "hidden_dropout_prob must be in"),
        ({"attention_probs_dropout_prob": -0.5}, "attention_probs_dropout_prob must be in"),
        ({"layer_norm_eps": 0.0}, "layer_norm_eps must be above 0, got 0.0"),
        ({"initializer_range": -0.02}, "initializer_range must be above 0, got -0.02"),
    ],
)
def test_encoder_refusals(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EncoderConfig(**options)


def test_build_record_accepts_exact_types_and_turns_an_int_into_a_float() -> None:
    record = build_record(Options, {"rate": 1, "limit": 2, "flag": True, "sizes": [1, 2]})
    assert record == Options(rate=1.0, limit=2.0, flag=True, sizes=(1, 2))
    assert isinstance(record.rate, float)
    assert isinstance(record.limit, float)
    assert build_record(Options, {"limit": None}).limit is None
    assert build_record(Options, {}) == Options()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"rte": 1.0}, "run.yaml: unknown option 'rte'; did you mean rate"),
        ({"zzz": 1.0}, "unknown option 'zzz'; known: count, flag, limit, name, rate, sizes"),
        ({3: 1.0}, "unknown option 3; known"),
        (
            {"rate": "1e-5"},
            r"'rate' must be float, got '1e-5' \(str\) \(YAML reads 1e-5 as text: write 1.0e-05\)",
        ),
        ({"rate": "nan"}, r"'rate' must be float, got 'nan' \(str\)$"),
        ({"rate": "fast"}, r"'rate' must be float, got 'fast' \(str\)$"),
        ({"rate": True}, r"'rate' must be float, got True \(bool\)"),
        ({"count": True}, r"'count' must be int, got True \(bool\)"),
        ({"count": 2.0}, r"'count' must be int, got 2.0 \(float\)"),
        ({"count": None}, r"'count' must be int, got None"),
        ({"flag": 1}, r"'flag' must be bool, got 1 \(int\)"),
        ({"flag": "yes"}, "'flag' must be bool, got 'yes'"),
        ({"name": 3}, "'name' must be str, got 3"),
        ({"limit": "none"}, r"'limit' must be float \| None, got 'none'"),
        ({"sizes": [1, True]}, r"'sizes' must be tuple\[int, ...\]"),
        ({"sizes": 1}, r"'sizes' must be tuple\[int, ...\]"),
    ],
)
def test_build_record_refusals(values: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_record(Options, values, where="run.yaml")


def test_build_record_names_the_place_of_a_value_out_of_range() -> None:
    with pytest.raises(ValueError, match="^run.yaml: alpha must be in"):
        build_record(HeadConfig, {"alpha": 2.0}, where="run.yaml")
    with pytest.raises(ValueError, match="^alpha must be in"):
        build_record(HeadConfig, {"alpha": 2.0})


def test_the_hint_for_numbers_is_itself_a_yaml_number(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    for text in ("1e-5", "2.5e5", "3e22", '"0.1"', "+1e3", ".1e-2"):
        path.write_text(f"rate: {text}\n")
        try:
            rate = build_record(Options, load_yaml(path)).rate
        except ValueError as error:
            advice = str(error).split("write ")[1].rstrip(")")
            path.write_text(f"rate: {advice}\n")
            rate = build_record(Options, load_yaml(path)).rate
        assert rate == float(text.strip('"'))


def test_near_names() -> None:
    known = ("bert_base", "bert_large", "swin")
    assert near_names("bert_bas", known) == "did you mean bert_base or bert_large?"
    assert near_names("xyz", known) == "known: bert_base, bert_large, swin"


def test_load_yaml_reads_a_mapping(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("a: 1\nb: {c: [1.0e-5, x]}\nd: ~\n")
    assert load_yaml(path) == {"a": 1, "b": {"c": [1e-5, "x"]}, "d": None}
    assert load_yaml(str(path)) == load_yaml(path)
    path.write_text("# nothing\n")
    assert load_yaml(path) == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"a: 1\nb: 2\na: 3\n", "key given twice: a"),
        (b"a: {b: 1, b: 1}\n", "key given twice: b"),
        (b"- a\n- b\n", "must hold a mapping of options, got list"),
        (b"just text\n", "must hold a mapping of options, got str"),
        (b"a: [1\n", "is not valid YAML"),
        (b"a: !!python/object/apply:os.getcwd []\n", "is not valid YAML"),
        (b"? [a, b]\n: 1\n", "is not valid YAML"),
        (b"a: \xff\n", "line 1: expected UTF-8 text, found byte 0xff"),
    ],
)
def test_load_yaml_refusals_name_the_file(tmp_path: Path, text: bytes, message: str) -> None:
    path = tmp_path / "run.yaml"
    path.write_bytes(text)
    with pytest.raises(ValueError, match=message) as caught:
        load_yaml(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_load_yaml_without_a_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot read .*no.yaml: No such file"):
        load_yaml(tmp_path / "no.yaml")
    with pytest.raises(ValueError, match="cannot read .*Is a directory"):
        load_yaml(tmp_path)
