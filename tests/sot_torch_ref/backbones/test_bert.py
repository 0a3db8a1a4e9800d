"""BERT with heads at toy size. Dims: B 2, S 7, C 12, L 2, heads 3, MLP 20, vocabulary 31, K 3."""

import pytest
import torch
from torch import nn

from sot_torch_ref import create_model
from sot_torch_ref.backbones.bert import EncoderConfig
from sot_torch_ref.heads.factory import NORMALIZATIONS

B, S, C, LAYERS, K = 2, 7, 12, 2, 3
TINY = {
    "vocab_size": 31,
    "hidden_size": C,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "max_position_embeddings": 16,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "head_dropout": 0.0,
    "q_dim": 6,
    "k_dim": 5,
    "head_num_heads": 2,
    "wr_dim": 4,
    "qkv_dim": 5,
    "initializer_range": 0.3,
}

SECOND_ORDER = ("head.covariance", "head.power_norm", "head.representation")

pytestmark = pytest.mark.usefixtures("float64")


def tiny(name: str = "bert_base_mgcrp", **keys: object) -> nn.Module:
    return create_model(name, num_classes=K, **{**TINY, **keys})


def batch(length: int = S) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Two sentences of 6 and 4 tokens, padded with zeros to ``length``."""
    generator = torch.Generator().manual_seed(5)
    ids = torch.randint(1, 31, (B, 6), generator=generator)
    types = torch.tensor([[0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 0, 0]])
    mask = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]])
    pad = (0, length - 6)
    return tuple(nn.functional.pad(value, pad) for value in (ids * mask, types, mask))


def encoder_by_formula(model: nn.Module, ids, types, mask) -> torch.Tensor:
    """BERT from its published formulas, one attention head at a time, on the model's weights."""
    w = model.bert.state_dict()

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        mean = x.mean(-1, keepdim=True)
        variance = ((x - mean) ** 2).mean(-1, keepdim=True)
        return (x - mean) / (variance + 1e-12).sqrt() * w[name + ".weight"] + w[name + ".bias"]

    def linear(x: torch.Tensor, name: str) -> torch.Tensor:
        return x @ w[name + ".weight"].T + w[name + ".bias"]

    tables = [w[f"embeddings.{n}_embeddings.weight"] for n in ("word", "position", "token_type")]
    x = tables[0][ids] + tables[1][: ids.shape[1]] + tables[2][types]
    x = norm(x, "embeddings.LayerNorm")
    for layer in range(LAYERS):
        at = f"encoder.layer.{layer}."
        q, k, v = (linear(x, f"{at}attention.self.{n}") for n in ("query", "key", "value"))
        heads = []
        for h in range(3):
            part = slice(4 * h, 4 * h + 4)
            scores = q[..., part] @ k[..., part].transpose(1, 2) / 4**0.5
            scores = scores.masked_fill(mask[:, None, :] == 0, -torch.inf)
            heads.append(scores.softmax(-1) @ v[..., part])
        joined = linear(torch.cat(heads, dim=-1), at + "attention.output.dense")
        x = norm(x + joined, at + "attention.output.LayerNorm")
        wide = linear(x, at + "intermediate.dense")
        wide = wide * 0.5 * (1 + torch.erf(wide / 2**0.5))
        x = norm(x + linear(wide, at + "output.dense"), at + "output.LayerNorm")
    return x


def randomise(model: nn.Module) -> None:
    for name, parameter in model.named_parameters():
        if name.endswith("bias") or "LayerNorm" in name or "_norm" in name:
            nn.init.normal_(parameter, mean=0.5, std=0.3)


def test_encoder_by_formula_and_taps() -> None:
    model = tiny().eval()
    randomise(model)
    ids, types, mask = batch()
    logits, taps = model(ids, types, mask, return_taps=True)
    expected = encoder_by_formula(model, ids, types, mask)
    torch.testing.assert_close(taps["layers.1"], expected, rtol=1e-10, atol=1e-10)
    assert list(taps) == [
        "embeddings",
        "layers.0",
        "layers.1",
        "head.q",
        "head.k",
        "head.covariance",
        "head.power_norm",
        "head.representation",
        "head.word_logits",
        "head.cls_logits",
        "logits",
    ]
    assert all(tap.dtype == torch.float64 for tap in taps.values())
    assert torch.equal(logits, taps["logits"])
    assert torch.equal(logits, model(ids, types, mask))
    assert taps["head.q"].shape == (B, S - 1, 6)
    cls = expected[:, 0] @ model.head.cls_fc.weight.T + model.head.cls_fc.bias
    torch.testing.assert_close(taps["head.cls_logits"], cls)


@pytest.mark.parametrize("pooling", sorted(NORMALIZATIONS))
def test_every_pooling_has_its_taps(pooling: str) -> None:
    _, taps = tiny(pooling=pooling)(*batch(), return_taps=True)
    middle = {
        "pooler": ["head.pooled"],
        "fc": ["head.projected"],
        "none": [],
        "gap": ["head.representation"],
        "mgcrp_qk": ["head.q", "head.k", *SECOND_ORDER],
    }
    second_order = ["head.projection", *SECOND_ORDER]
    expected = middle.get(pooling, second_order)
    word = ["head.word_logits"] if "head.representation" in expected else []
    assert list(taps)[3:] == [*expected, *word, "head.cls_logits", "logits"]


def test_taps_are_the_tensors_of_the_graph() -> None:
    logits, taps = tiny("bert_base_mgcrp", pooling="mgcrp")(*batch(), return_taps=True)
    for tap in taps.values():
        tap.retain_grad()
    logits.sin().sum().backward()
    assert all(tap.grad is not None for tap in taps.values())
    assert taps["embeddings"].grad.abs().max() > 0


def test_sum_loss_output() -> None:
    model = tiny(fusion="sum_loss")
    (cls_logits, word_logits), taps = model(*batch(), return_taps=True)
    assert torch.equal(taps["logits"], cls_logits + word_logits)
    assert taps["head.cls_logits"] is cls_logits
    assert taps["head.word_logits"] is word_logits
    assert model.eval()(*batch()).shape == (B, K)


def test_defaults_of_the_optional_inputs() -> None:
    model = tiny().eval()
    ids, _, mask = batch()
    zeros = torch.zeros_like(ids)
    assert torch.equal(model(ids), model(ids, zeros, torch.ones_like(ids)))
    assert torch.equal(model(ids, attention_mask=mask), model(ids, zeros, mask))
    assert not torch.equal(model(ids), model(ids, zeros, mask))


@pytest.mark.parametrize("pooling", ["mgcrp_qk", "mgcrp", "gcp", "gap"])
@pytest.mark.parametrize("fusion", ["sum_fc", "aggre_all", "concat"])
@pytest.mark.parametrize("training", [True, False])
def test_mask_padding_makes_the_padded_length_irrelevant(pooling, fusion, training: bool) -> None:
    results = []
    for length in (8, 13):
        torch.manual_seed(3)
        model = tiny(pooling=pooling, fusion=fusion, mask_padding=True).train(training)
        logits = model(*batch(length))
        logits.sin().sum().backward()
        results.append((logits, dict(model.named_parameters()), dict(model.named_buffers())))
    (short, left, left_buffers), (long, right, right_buffers) = results
    torch.testing.assert_close(short, long, rtol=1e-10, atol=1e-11)
    for name, parameter in left.items():
        if parameter.grad is None:
            assert right[name].grad is None
            continue
        torch.testing.assert_close(parameter.grad, right[name].grad, rtol=1e-8, atol=1e-10)
    for name, value in left_buffers.items():
        torch.testing.assert_close(value, right_buffers[name], rtol=1e-11, atol=1e-12)


def test_features_split_the_class_token_off_states_and_mask() -> None:
    model = tiny(pooling="gap", mask_padding=True)
    ids, types, mask = batch()
    features, taps = model.encode(ids, types, mask)
    last = taps["layers.1"]
    assert torch.equal(features.cls, last[:, 0])
    assert torch.equal(features.words, last[:, 1:])
    assert features.mask.tolist() == [[True] * 5 + [False], [True] * 3 + [False] * 3]
    assert model.encode(ids, types)[0].mask is None
    _, taps = model(ids, types, mask, return_taps=True)
    expected = torch.stack([last[0, 1:6].mean(dim=0), last[1, 1:4].mean(dim=0)])
    torch.testing.assert_close(taps["head.representation"], expected)


def test_faithful_head_depends_on_padding() -> None:
    model = tiny().eval()
    assert (model(*batch(8)) - model(*batch(13))).abs().max() > 1e-4


def test_sample_without_word_tokens_trains_with_mask_padding() -> None:
    model = tiny(mask_padding=True, pooling="mgcrp")
    ids, types, mask = batch()
    mask[1, 1:] = 0
    model(ids, types, mask).sin().sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())


def test_padding_row_starts_at_zero_and_gets_no_gradient() -> None:
    model = tiny()
    table = model.bert.embeddings.word_embeddings.weight
    assert torch.equal(table[0], torch.zeros(C))
    model(*batch()).sin().sum().backward()
    assert torch.equal(table.grad[0], torch.zeros(C))
    assert table.grad.abs().max() > 0


def test_freeze_encoder() -> None:
    model = tiny(freeze_encoder=True)
    model(*batch()).sum().backward()
    assert all(p.grad is None and not p.requires_grad for p in model.bert.parameters())
    assert all(p.grad is not None for p in model.head.parameters())
    assert all(p.requires_grad for p in tiny().parameters())


def test_state_names() -> None:
    names = list(tiny("bert_base").state_dict())
    assert names[0] == "bert.embeddings.word_embeddings.weight"
    assert "bert.encoder.layer.1.attention.output.LayerNorm.weight" in names
    assert names[-4:] == [
        "head.dense.weight",
        "head.dense.bias",
        "head.cls_fc.weight",
        "head.cls_fc.bias",
    ]
    assert not any("pooler" in name or "position_ids" in name for name in names)
    assert len(names) == 5 + 16 * LAYERS + 4


def test_encoder_settings() -> None:
    model = tiny(layer_norm_eps=1e-5, hidden_act="relu", hidden_dropout_prob=0.25)
    assert model.bert.config._attn_implementation == "eager"
    assert model.bert.embeddings.LayerNorm.eps == 1e-5
    assert model.bert.encoder.layer[0].output.dropout.p == 0.25
    assert isinstance(model.bert.encoder.layer[0].intermediate.intermediate_act_fn, nn.ReLU)
    assert tiny("bert_base", head_dropout=None, hidden_dropout_prob=0.2).head.dropout.p == 0.2


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"hidden_size": 13}, "multiple of num_attention_heads, got 13 and 3"),
        ({"num_hidden_layers": 0}, "num_hidden_layers must be an integer"),
        ({"hidden_act": "swish"}, "hidden_act must be one of"),
        ({"layer_norm_eps": "1e-12"}, "layer_norm_eps must be a number above 0"),
        ({"hidden_dropout_prob": -0.1}, "hidden_dropout_prob must be a number in"),
        ({"attention_probs_dropout_prob": 1}, "attention_probs_dropout_prob must be a number in"),
        ({"pad_token_id": 31}, "pad_token_id must be an integer from 0 to 30, got 31"),
        ({"pad_token_id": None}, "pad_token_id must be an integer"),
        ({"freeze_encoder": "no"}, "freeze_encoder must be True or False"),
        ({"initializer_range": 0}, "initializer_range must be a number above 0"),
    ],
)
def test_configuration_refusals(keys: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tiny(**keys)


def test_input_refusals() -> None:
    model = tiny()
    ids, types, mask = batch()
    with pytest.raises(ValueError, match="S from 1 to 16"):
        model(torch.ones(B, 17, dtype=torch.long))
    with pytest.raises(ValueError, match="input_ids must have shape"):
        model(ids[0])
    with pytest.raises(ValueError, match="attention_mask must have the shape of input_ids"):
        model(ids, types, mask[:, 1:])
    with pytest.raises(ValueError, match="token_type_ids must have the shape"):
        model(ids, types[:1])
    for pooling in ("mgcrp_qk", "mgcrp", "gap"):
        with pytest.raises(ValueError, match="at least one word token"):
            tiny(pooling=pooling)(ids[:, :1])


def test_published_encoder_defaults() -> None:
    config = EncoderConfig()
    assert (config.hidden_size, config.num_hidden_layers) == (768, 12)
    assert (config.vocab_size, config.type_vocab_size, config.pad_token_id) == (30522, 2, 0)
    assert (config.layer_norm_eps, config.hidden_act) == (1e-12, "gelu")
