"""SoT and DeiT: timm itself, formulas at toy size, counts. Dims: B 2, C 12, h 3, L 2, K 5."""

import math

import pytest
import torch
from torch import nn

from sot_torch_ref import create_model
from sot_torch_ref.backbones import vit
from sot_torch_ref.backbones.layers import DropPath, drop_path_rates
from sot_torch_ref.vision_config import ViTConfig
from tests.sot_torch_ref.backbones.against_timm import Scale, assert_same

B, C, K, SIZE = 2, 12, 5, 16
TINY = {
    "img_size": SIZE,
    "embed_dim": C,
    "depth": 2,
    "num_heads": 3,
    "mlp_ratio": 2.5,
    "head_num_heads": 2,
    "wr_dim": 4,
    "head_dropout": 0.0,
}

pytestmark = pytest.mark.usefixtures("float64")


def tiny(name: str = "sot_tiny", **keys: object) -> nn.Module:
    return create_model(name, num_classes=K, **{**TINY, **keys})


def pictures(size: int = SIZE, chans: int = 3, count: int = B) -> torch.Tensor:
    return torch.randn(count, chans, size, size, generator=torch.Generator().manual_seed(3))


def randomise(model: nn.Module, std: float = 0.3) -> None:
    """Weights far from their start: norms away from 1 and 0, biases away from 0."""
    for name, parameter in model.named_parameters():
        with torch.no_grad():
            parameter.add_(torch.randn_like(parameter) * (std if parameter.ndim == 1 else 0.05))
            if "norm" in name and name.endswith("weight"):
                parameter.mul_(0.7)


def deit_name(name: str) -> str:
    """Name of a timm DeiT tensor in the reference."""
    return name.replace("patch_embed.", "embed.").replace("head.", "head.cls_fc.")


def timm_deit(seed: int, **keys: object) -> nn.Module:
    import timm

    torch.manual_seed(seed)
    other = timm.create_model("deit_tiny_patch16_224", **keys)
    randomise(other)
    return other


def copy_deit(other: nn.Module, **keys: object) -> nn.Module:
    model = create_model("deit_tiny", **keys)
    model.load_state_dict({deit_name(n): v for n, v in other.state_dict().items()}, strict=True)
    return model


@pytest.mark.parametrize("seed", [1, 2])
def test_deit_tiny_is_timm(seed: int) -> None:
    other = timm_deit(seed)
    model = copy_deit(other)
    assert other.norm.eps == other.blocks[0].norm1.eps == 1e-6
    assert_same(model.eval(), other.eval(), deit_name, pictures(224))


@pytest.mark.parametrize("seed", [3, 4, 5])
@pytest.mark.parametrize("img_size", [32, 48])
def test_small_deit_is_timm(seed: int, img_size: int) -> None:
    keys = {"img_size": img_size, "embed_dim": 24, "depth": 3, "num_heads": 4, "num_classes": 7}
    other = timm_deit(seed, **keys)
    with torch.no_grad():  # small activations: a wrong epsilon shows
        other.patch_embed.proj.weight.mul_(1e-2)
        other.pos_embed.mul_(1e-2)
    model = copy_deit(other, **keys)
    assert_same(model.eval(), other.eval(), deit_name, pictures(img_size))
    wrong = copy_deit(other, layer_norm_eps=1e-5, **keys).eval()
    right = other(pictures(img_size))
    assert (wrong(pictures(img_size)) - right).abs().max() > 1e-8 * right.abs().max()


def test_drop_path_is_where_timm_has_it() -> None:
    """Both sides with the branches scaled by the same factor for each sample, instead of draws."""
    keys = {"img_size": 32, "embed_dim": 24, "depth": 3, "num_heads": 4, "num_classes": 7}
    other = timm_deit(6, **keys)
    model = copy_deit(other, **keys)
    for index, (block, theirs) in enumerate(zip(model.blocks, other.blocks, strict=True)):
        block.drop_path = Scale(index)
        theirs.drop_path1, theirs.drop_path2 = Scale(index), Scale(index)
    assert_same(model.train(), other.train(), deit_name, pictures(32))
    other = timm_deit(6, drop_path_rate=0.3, **keys)
    assert [theirs.drop_path1.drop_prob for theirs in other.blocks[1:]] == pytest.approx(
        [0.15, 0.3]
    )
    model = create_model("deit_tiny", drop_path_rate=0.3, **keys)
    assert [block.drop_path.rate for block in model.blocks] == [0.0, 0.15, 0.3]


@pytest.mark.parametrize(
    ("name", "parameters", "buffer"),
    [
        ("sot_tiny", 7_983_550, 197 * 240),
        ("sot_small", 27_010_856, 197 * 384),
        ("sot_base", 76_774_966, 197 * 528),
    ],
)
def test_published_parameter_counts(name: str, parameters: int, buffer: int) -> None:
    torch.set_default_dtype(torch.float32)  # the fixture restores it
    model = create_model(name)
    assert sum(p.numel() for p in model.parameters()) == parameters
    assert model.pos_embed.numel() == buffer
    assert "pos_embed" in model.state_dict()
    assert model.head.cls_fc.out_features == 1000


@pytest.mark.parametrize(
    ("name", "published"),
    [("deit_tiny_sot", 7.05), ("deit_small_sot", 25.6), ("deit_base_sot", 95.3)],
)
def test_inferred_parameter_counts(name: str, published: float) -> None:
    torch.set_default_dtype(torch.float32)
    count = sum(p.numel() for p in create_model(name).parameters())
    assert count / 1e6 == pytest.approx(published, abs=0.05)


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("deit_tiny", "deit_tiny_patch16_224"),
        ("deit_small", "deit_small_patch16_224"),
        ("deit_base", "deit_base_patch16_224"),
    ],
)
def test_deit_names_and_shapes_are_timm(name: str, other: str) -> None:
    import timm

    with torch.device("meta"):
        theirs = timm.create_model(other).state_dict()
        ours = create_model(name).state_dict()
    assert {deit_name(n): v.shape for n, v in theirs.items()} == {
        n: v.shape for n, v in ours.items()
    }


def test_sinusoid_table_by_hand() -> None:
    table = vit.sinusoid_table(7, 6)
    assert table.shape == (1, 7, 6)
    assert table.dtype == torch.float64
    for position in range(7):
        for channel in range(6):
            angle = position / 10000 ** (2 * (channel // 2) / 6)
            value = math.cos(angle) if channel % 2 else math.sin(angle)
            assert table[0, position, channel] == torch.tensor(value).to(torch.float32)


def vit_by_formula(model: nn.Module, words: torch.Tensor, eps: float) -> torch.Tensor:
    """Blocks and final norm from the published formulas, one attention head at a time."""
    w = {**dict(model.named_parameters()), **dict(model.named_buffers())}

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        mean = x.mean(-1, keepdim=True)
        variance = ((x - mean) ** 2).mean(-1, keepdim=True)
        return (x - mean) / (variance + eps).sqrt() * w[name + ".weight"] + w[name + ".bias"]

    def linear(x: torch.Tensor, name: str) -> torch.Tensor:
        return x @ w[name + ".weight"].T + w.get(name + ".bias", 0.0)

    x = torch.cat([w["cls_token"].repeat(len(words), 1, 1), words], 1) + w["pos_embed"]
    for index in range(2):
        at = f"blocks.{index}."
        qkv = linear(norm(x, at + "norm1"), at + "attn.qkv")
        heads = []
        for h in range(3):
            q, k, v = (qkv[..., C * part + 4 * h : C * part + 4 * h + 4] for part in range(3))
            heads.append((q @ k.transpose(1, 2) / 2.0).softmax(-1) @ v)
        x = x + linear(torch.cat(heads, -1), at + "attn.proj")
        wide = linear(norm(x, at + "norm2"), at + "mlp.fc1")
        wide = wide * 0.5 * (1 + torch.erf(wide / 2**0.5))
        x = x + linear(wide, at + "mlp.fc2")
    return norm(x, "norm")


def test_sot_by_formula_and_taps() -> None:
    model = tiny().eval()
    randomise(model)
    logits, taps = model(pictures(), return_taps=True)
    expected = vit_by_formula(model, taps["embed"], 1e-5)
    torch.testing.assert_close(taps["norm"], expected, rtol=1e-11, atol=1e-12)
    assert list(taps) == [
        "embed.stem",
        *(f"embed.blocks.{index}" for index in range(6)),
        "embed",
        "tokens",
        "blocks.0",
        "blocks.1",
        "norm",
        "head.projection",
        "head.covariance",
        "head.power_norm",
        "head.representation",
        "head.word_logits",
        "head.cls_logits",
        "logits",
    ]
    assert taps["embed"].shape == (B, 4, C)
    assert taps["tokens"].shape == taps["blocks.1"].shape == (B, 5, C)
    assert model.blocks[0].mlp.fc1.out_features == 30
    assert model.blocks[0].attn.qkv.bias is None
    assert torch.equal(logits, taps["logits"])
    assert torch.equal(logits, model(pictures()))
    cls = expected[:, 0] @ model.head.cls_fc.weight.T + model.head.cls_fc.bias
    torch.testing.assert_close(taps["head.cls_logits"], cls)
    torch.testing.assert_close(
        taps["head.projection"], expected[:, 1:] @ model.head.pooling.wr.weight.T
    )
    assert all(tap.dtype == torch.float64 for tap in taps.values())


def test_every_tap_is_in_the_graph() -> None:
    _, taps = tiny()(pictures(), return_taps=True)
    logits = taps["logits"]
    for tap in taps.values():
        tap.retain_grad()
    logits.sin().sum().backward()
    assert all(tap.grad is not None and tap.grad.abs().max() > 0 for tap in taps.values())


@pytest.mark.parametrize("token_type", ["densenet", "resnet", "inception", "nonlocal", "linear"])
@pytest.mark.parametrize("position", ["sinusoid", "learned"])
def test_any_token_embedding_and_position_train(token_type: str, position: str) -> None:
    model = tiny(token_type=token_type, position=position, img_size=28)
    model(pictures(28)).sin().sum().backward()
    unused = [name for name, p in model.named_parameters() if p.grad is None]
    assert unused == []
    is_parameter = "pos_embed" in dict(model.named_parameters())
    assert is_parameter == (position == "learned")
    assert model.pos_embed.shape == (1, 1 + model.embed.num_tokens, C)


@pytest.mark.parametrize(
    "keys",
    [
        {"pooling": "gap"},
        {"pooling": "gcp", "qkv_dim": 2},
        {"pooling": "mgcrp_qk", "q_dim": 5, "k_dim": 3},
        {"pooling": "pooler"},
        {"pooling": "fc"},
        {"pooling": "none"},
        {"fusion": "concat"},
        {"fusion": "aggre_all"},
        {"fusion": "class_token"},
        {"fusion": "word_tokens"},
    ],
)
def test_any_head(keys: dict) -> None:
    assert tiny(**keys).eval()(pictures()).shape == (B, K)


def test_sum_loss_output() -> None:
    model = tiny(fusion="sum_loss")
    (cls_logits, word_logits), taps = model(pictures(), return_taps=True)
    assert torch.equal(taps["logits"], cls_logits + word_logits)
    assert model.eval()(pictures()).shape == (B, K)


def test_qkv_bias_is_the_backbones() -> None:
    model = tiny(qkv_bias=True)
    assert model.blocks[0].attn.qkv.bias is not None
    assert model.head.pooling.wr.bias is None


def test_drop_path() -> None:
    layer = DropPath(0.25)
    x = torch.randn(4, 3, 2)
    layer.draw = lambda batch, like: torch.tensor([0.0, 0.2499, 0.25, 0.999])  # keep: u >= rate
    expected = x * torch.tensor([0.0, 0.0, 1.0, 1.0])[:, None, None] / 0.75
    torch.testing.assert_close(layer(x), expected)
    assert layer.eval()(x) is x
    assert DropPath(0.0)(x) is x
    rows = DropPath(0.5)(torch.ones(2000, 2))
    assert torch.equal(rows[:, 0], rows[:, 1])
    assert rows.unique().tolist() == [0.0, 2.0]
    assert 0.9 < rows.mean() < 1.1
    assert drop_path_rates(0.1, 3) == pytest.approx([0.0, 0.05, 0.1])
    assert drop_path_rates(0.1, 1) == [0.0]


def test_initial_weights() -> None:
    model = create_model("sot_tiny", 9, depth=1, position="learned", img_size=112)
    linears = [m for m in model.modules() if isinstance(m, nn.Linear)]
    assert len(linears) == 7
    for linear in linears:
        assert linear.weight.detach().std() == pytest.approx(0.02, rel=0.1)
        assert linear.bias is None or not linear.bias.any()
    assert model.cls_token.detach().std() == pytest.approx(0.02, rel=0.2)
    assert model.pos_embed.detach().std() == pytest.approx(0.02, rel=0.05)
    assert 0.5 < model.head.pooling.norm.weight.detach().std() < 1.6


def test_dropouts() -> None:
    model = tiny(drop_rate=0.2, attn_drop_rate=0.3, pooling="pooler", head_dropout=None)
    assert model.pos_drop.p == model.blocks[0].mlp.drop.p == model.head.dropout.p == 0.2
    assert model.blocks[1].attn.attn_drop.p == 0.3
    assert model.blocks[1].attn.proj_drop.p == 0.2
    published = [create_model(n, 3, depth=1).head.dropout.p for n in ("sot_tiny", "sot_small")]
    assert published == [0.0, 0.5]
    assert vit.PRESETS["sot_base"]["head_dropout"] == 0.7


def test_qk_scale() -> None:
    model = tiny(qk_scale=0.01)
    assert model.blocks[0].attn.scale == 0.01
    assert tiny().blocks[0].attn.scale == 0.5


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"embed_dim": 13}, "embed_dim must be a multiple of num_heads, got 13 and 3"),
        ({"depth": 0}, "depth must be an integer of at least 1"),
        ({"mlp_ratio": 0}, "mlp_ratio must be a number above 0"),
        ({"position": "rope"}, "position must be one of"),
        ({"drop_path_rate": 1.0}, r"drop_path_rate must be a number in \[0, 1\)"),
        ({"qkv_bias": 1}, "qkv_bias must be True or False"),
        ({"qk_scale": -1.0}, "qk_scale must be a number above 0"),
        ({"layer_norm_eps": "1e-5"}, "layer_norm_eps must be a number above 0"),
        ({"hidden_size": 12}, "unknown override 'hidden_size'; did you mean"),
        ({"embed_dims": 12}, "unknown override 'embed_dims'; did you mean: embed_dim"),
    ],
)
def test_configuration_refusals(keys: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tiny(**keys)


def test_input_refusals() -> None:
    model = tiny()
    for wrong in (pictures(8), pictures(chans=1), pictures()[0], pictures().to(torch.uint8)):
        with pytest.raises(ValueError, match=r"images must be a float batch \(B, 3, 16, 16\)"):
            model(wrong)


def test_published_defaults() -> None:
    config = ViTConfig(embed_dim=4, depth=1, num_heads=1, mlp_ratio=1.0)
    assert (config.layer_norm_eps, config.qkv_bias, config.position) == (1e-5, False, "sinusoid")
    assert (config.token_type, config.token_dim, config.dense_norm) == ("densenet", 64, "none")
    assert create_model("deit_tiny_sot", depth=1).config.layer_norm_eps == 1e-6
