"""Token embeddings: counts and refusals; stages: cases sot_*, geometry: parity/test_defaults."""

from __future__ import annotations

import paddle
import pytest

from sot_paddle.backbones import token_embed

SIZES = (112, 160, 192, 224, 256, 384)
PUBLISHED_TOKENS = {
    "resnet": (196, 400, 576, 196, 256, 256),
    "inception": (196, 400, 576, 196, 256, 576),
    "densenet": (196, 400, 576, 196, 256, 576),
    "nonlocal": (196, 400, 576, 784, 1024, 2304),
    "linear": (196, 196, 196, 196, 196, 196),
}
PUBLISHED_PARAMETERS = {
    "resnet": 448_384,
    "inception": 157_600,
    "densenet": 297_792,
    "nonlocal": 288_640,
    "linear": 295_296,
}
TYPES = (*PUBLISHED_TOKENS, "patch")


def build(token_type: str, **options):
    sizes = {"img_size": 16, "in_chans": 2, "embed_dim": 12, "patch_size": 4}
    return token_embed.build_token_embed(token_type, **{**sizes, **options})


def size_of(layer) -> int:
    return sum(int(parameter.size) for parameter in layer.parameters())


@pytest.mark.parametrize("token_type", list(PUBLISHED_TOKENS))
def test_published_token_counts(token_type: str) -> None:
    found = tuple(
        token_embed.build_token_embed(token_type, img_size=size, embed_dim=2).num_tokens
        for size in SIZES
    )
    assert found == PUBLISHED_TOKENS[token_type]


@pytest.mark.parametrize("token_type", TYPES)
@pytest.mark.parametrize("img_size", [16, 32, 112])
def test_the_counts_are_what_comes_out(token_type: str, img_size: int) -> None:
    layer = build(token_type, img_size=img_size)
    result = layer(paddle.ones([2, 2, img_size, img_size]))
    assert result.shape == [2, layer.num_tokens, 12]
    assert layer.grid**2 == layer.num_tokens


@pytest.mark.parametrize("token_type", list(PUBLISHED_PARAMETERS))
def test_published_parameter_counts(token_type: str) -> None:
    assert size_of(token_embed.build_token_embed(token_type)) == PUBLISHED_PARAMETERS[token_type]


def test_batch_norm_in_dense_layers_adds_6432_parameters() -> None:
    plain, normed = build("densenet"), build("densenet", dense_norm="bn")
    assert size_of(normed) - size_of(plain) == 6432
    own = [name for name in normed.state_dict() if ".layers." in name and ".norm" in name]
    assert len(own) == 3 * 6 * 2 * 4
    assert set(plain.state_dict()) == set(normed.state_dict()) - set(own)


@pytest.mark.parametrize(
    ("token_type", "options", "message"),
    [
        ("densnet", {}, "token_type must be one of densenet, .*'densnet'; did you mean densenet"),
        ("densenet", {"dense_norm": "ln"}, "dense_norm must be one of none, bn, got 'ln'"),
        ("resnet", {"dense_norm": "bn"}, "dense_norm 'bn' is an option of token_type 'densenet'"),
        ("resnet", {"large_output": True}, "'resnet': its first block would add 64 .* 256; use"),
        ("nonlocal", {"large_output": True}, "'nonlocal': its resolution is fixed at 1/8; use"),
        ("linear", {"large_output": True}, "'linear': its grid is fixed by img_size // 14; use"),
        ("patch", {"large_output": True}, "'patch': its resolution is img_size / patch_size; use"),
        ("densenet", {"token_dim": 32}, "token_dim must be 64 with token_type 'densenet'.*got 32"),
        ("inception", {"token_dim": 32}, "token_dim must be 64.*; only 'resnet' takes another"),
        ("nonlocal", {"token_dim": 32}, "token_dim must be 64"),
        ("densenet", {"img_size": 100}, "by 8: img_size 100 gives no whole .* img_size 96 or 104"),
        ("densenet", {"img_size": 5}, "img_size 5 gives no whole number of tokens; use .* 8$"),
        ("resnet", {"img_size": 350}, "by 24: img_size 350 .*; use img_size 336 or 360"),
        ("linear", {"img_size": 13}, "img_size must be at least 14 with token_type 'linear'"),
        ("patch", {"img_size": 50}, "img_size must be a multiple of patch_size 4, got 50"),
        ("densenet", {"img_size": 0}, "img_size must be at least 1, got 0"),
        ("densenet", {"in_chans": 0}, "in_chans must be at least 1, got 0"),
        ("resnet", {"token_dim": 0}, "token_dim must be at least 1, got 0"),
    ],
)
def test_refusals(token_type: str, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(token_type, **options)


@pytest.mark.parametrize("token_type", ["densenet", "patch"])
@pytest.mark.parametrize("shape", [(2, 2, 16, 24), (2, 3, 16, 16), (2, 16, 16)])
def test_images_of_another_shape_are_refused(token_type: str, shape: tuple) -> None:
    with pytest.raises(ValueError, match=r"images must have shape \(B, 2, 16, 16\), got \[2, "):
        build(token_type)(paddle.ones(shape))


def test_resnet_takes_another_token_dim() -> None:
    layer = build("resnet", token_dim=10)
    assert layer.stem.conv.weight.shape == [10, 2, 3, 3]
    assert layer.blocks[0].conv1.weight.shape == [64, 10, 1, 1]
    assert layer(paddle.ones([2, 2, 16, 16])).shape == [2, 4, 12]
