"""Models by name, strict overrides, and the lazy public names."""

from __future__ import annotations

import pytest

import sot_paddle
from sot_paddle import create_model, list_models, registry

SIZES = [f"{name}_{size}" for name in ("bert", "roberta", "spanbert") for size in ("base", "large")]
TEXT = [
    f"{name}{head}" for name in (*SIZES, "openai_gpt", "conv_bert_base") for head in ("", "_mgcrp")
]
VISION = [f"deit_{size}{head}" for size in ("base", "small", "tiny") for head in ("", "_sot")]
VISION += ["sot_base", "sot_small", "sot_tiny"]
VISION += [f"swin_{size}{head}" for size in ("base", "tiny") for head in ("", "_sot")]
SMALL_VISION = {
    "sot_tiny": {"img_size": 32, "depth": 1},
    "deit_tiny": {"img_size": 32, "depth": 1},
    "swin_tiny": {"img_size": 28, "embed_dim": 8, "depths": (1, 1), "num_heads": (2, 4)},
}


def test_list_models_is_sorted() -> None:
    assert list_models() == sorted(TEXT + VISION)
    assert list_models("text") == sorted(TEXT)
    assert list_models("vision") == VISION
    with pytest.raises(ValueError, match="kind must be 'text', 'vision' or None, got 'audio'"):
        list_models("audio")


@pytest.mark.parametrize("name", list(SMALL_VISION))
def test_a_vision_model_has_1000_classes_by_default(name: str) -> None:
    assert create_model(name, **SMALL_VISION[name]).num_classes == 1000
    model = create_model(name, 5, **SMALL_VISION[name])
    assert (model.num_classes, model.name) == (5, name)
    for attribute in ("backbone_config", "head_config", "img_size"):
        assert getattr(model, attribute) is not None


@pytest.mark.parametrize(("published", "name"), registry.PUBLISHED_NAMES.items())
def test_names_of_the_original_release(published: str, name: str) -> None:
    model = create_model(published, 2, img_size=16, depth=1)
    assert model.name == name
    assert name in list_models()


@pytest.mark.parametrize(
    ("name", "overrides", "message"),
    [
        ("xlnet", {}, "unknown model 'xlnet'; known: bert_base, .*, swin_tiny_sot"),
        ("sot_tny", {}, "unknown model 'sot_tny'; did you mean sot_tiny"),
        ("sot_tiny", {"hidden_size": 8}, "'hidden_size' for sot_tiny; did you mean"),
        ("bert_base", {"hiden_size": 8}, "'hiden_size' for bert_base; did you mean hidden_size"),
        ("bert_base_mgcrp", {"normalization": "ln"}, "normalization of head 'mgcrp' must be"),
        ("bert_base", {"num_classes": 0}, "num_classes must be at least 1, got 0"),
        ("bert_base", {"num_classes": True}, "num_classes must be an integer, got True"),
        ("bert_base", {"head": "gap"}, "head must be one of mgcrp, plain, got 'gap'"),
        ("bert_base_mgcrp", {"head": "plain"}, "give 'bert_base' and head='plain'"),
        ("sot_tiny", {"head": "mgcrp"}, "head is for language models, got 'sot_tiny'"),
    ],
)
def test_refusals(name: str, overrides: dict, message: str) -> None:
    tiny = {} if "sot" in name else {"num_hidden_layers": 1, "vocab_size": 9}
    with pytest.raises(ValueError, match=message):
        create_model(name, **{**tiny, **overrides})


@pytest.mark.parametrize(
    ("name", "head", "alias", "pooling"),
    [
        ("bert_base", "mgcrp", "bert_base_mgcrp", "mgcrp_qk"),
        ("bert_base", "plain", "bert_base", "pooler"),
        ("bert_base_mgcrp", None, "bert_base_mgcrp", "mgcrp_qk"),
    ],
)
def test_a_head_by_its_name_or_by_the_alias(name, head, alias, pooling, tiny_options) -> None:
    given = {} if head is None else {"head": head}
    model = create_model(name, 3, **given, **tiny_options)
    assert (model.name, model.head_config.pooling) == (alias, pooling)
    same = create_model(alias, 3, **tiny_options)
    assert same.head_config == model.head_config
    assert list(same.state_dict()) == list(model.state_dict())
    pooled = create_model("bert_base", head="mgcrp", pooling="gap", **tiny_options)
    assert (pooled.name, pooled.head_config.pooling) == ("bert_base_mgcrp", "gap")


RECORDS = list(registry.TEXT_BACKBONES.values())


@pytest.mark.parametrize("backbone", RECORDS, ids=lambda backbone: backbone.architecture)
def test_the_record_of_a_language_model_fits_its_parameters(backbone, tiny_options) -> None:
    preset = next(iter(backbone.presets))
    wider = {"intermediate_size": backbone.inner_factor * 12} if backbone.inner_factor else {}
    model = create_model(preset, **(tiny_options | wider), pad_token_id=2)
    names = dict(model.named_parameters())
    assert {name.split(".")[0] for name in names} == {backbone.prefix, "head"}
    norms = {name for name in names if registry.UNDECAYED.fullmatch(name)}
    assert {name.replace(".weight", ".bias") for name in norms} <= set(names)
    embedded = any("embeddings" in name for name in norms)
    assert len(norms) == 4 + embedded  # two of each layer, and that of the embeddings
    assert all(len(names[name].shape) == 1 for name in norms)
    assert model.backbone is backbone is registry.text_backbone(model.name)
    config = model.backbone_config
    read = backbone.read_config(backbone.write_config(config))
    assert {**backbone.defaults(preset), **read} == vars(config)
    assert len(read) > 9


@pytest.mark.parametrize(
    ("depth", "hint", "name"),
    [(0, "", "base"), (6, "", "base"), (12, "", "base"), (13, "", "large"), (30, "", "large")]
    + [(0, "bert-large-cased", "large"), (2, "bert_large_mgcrp", "large")]
    + [(24, "bert-base-uncased", "large"), (2, "another-bert-large", "base")],
)
def test_the_preset_of_a_checkpoint(depth, hint, name) -> None:
    """The one that the name says, or the smallest that is as deep."""
    backbone = registry.TEXT_BACKBONES["bert"]
    stated = {"num_hidden_layers": depth} if depth else {}
    assert backbone.preset_for(stated, hint) == f"bert_{name}"


def test_public_names_are_lazy_and_complete() -> None:
    for name in sot_paddle.__all__:
        assert getattr(sot_paddle, name) is not None
    assert set(sot_paddle.__all__) <= set(dir(sot_paddle))
    with pytest.raises(AttributeError, match="module 'sot_paddle' has no attribute 'creat_model'"):
        _ = sot_paddle.creat_model
