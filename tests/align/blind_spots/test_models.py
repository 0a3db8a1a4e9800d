"""Faults in shapes, masks and options of models: each caught by its case, at the right place."""

import pytest

from align.cases.kinds.case_kinds import ModelCase
from align.cases.tables.cases import CASES
from sot_paddle import functional
from sot_paddle.backbones import layers, swin_blocks, token_embed
from sot_paddle.backbones.text_encoder import TextEncoder
from sot_paddle.config import EncoderConfig
from sot_paddle.heads import fusion
from sot_paddle.vision_config import SwinConfig

ACTIVATIONS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu", "swish", "tanh")
POOLINGS = {
    "mgcrp": "head.covariance",
    "mgcrp_qk": "head.covariance",
    "gap": "head.representation",
    "gcp": "head.covariance",
}
PADDED = "swin_padded_grid forward float64"
BEFORE = (swin_blocks, "_pad", "0, amount, 0, amount, 0, 0]", "amount, 0, amount, 0, 0, 0]")
PAD_ID = "zero_row_hook(config.pad_token_id)"
VALID = "weights.sum(axis=1, keepdim=True)"

CHANGES = [
    # windows
    (PADDED, *BEFORE, "stages.0.blocks.0"),
    (f"timm_{PADDED}", *BEFORE, "stages.0.blocks.0"),
    (PADDED, swin_blocks.PatchMerging, "forward", "_pad(x, 1)")
    + ("paddle.roll(_pad(x, 1), [1, 1], axis=[1, 2])", "stages.1.downsample"),
    *(
        (job, swin_blocks, "shift_mask", "MASKED, 0.0)", "0.0, 0.0)", "stages.0.blocks.1")
        for job in (PADDED, "swin_window_8 forward float64")
    ),
    # the regions of a 5 x 5 grid, where those of the padded 8 x 8 belong
    (PADDED, swin_blocks, "shift_mask", ">= size - shift", ">= 5 - shift", "stages.0.blocks.1"),
    ("swin_window_8 forward float64", swin_blocks.SwinBlock, "__init__", "self.window // 2 if")
    + ("3 if", "stages.0.blocks.1"),
    # the two scores in evaluation; of the pair in place of their sum the taps show nothing
    *(
        (f"{case} {step} float64", fusion.SumLossHead, "forward", "else cls + word", other, place)
        for case in ("head_mgcrp_sum_loss_eval", "sot_sum_loss_eval")
        for other in ("else cls", "else word", "else (cls + word) / 2")
        for step, place in (("forward", "logits"), ("backward", "loss"))
    ),
    *(
        (f"sot_sum_loss_eval {step} float64", fusion.SumLossHead, "forward", "if self.training")
        + ("if True", place)
        for step, place in (("forward", "(outputs of the model)"), ("backward", "loss"))
    ),
    # options
    *(
        ("bert_pad_id backward float64", TextEncoder, "settle", PAD_ID, other)
        + ("bert.embeddings.word_embeddings.weight",)
        for other in ("zero_row_hook(0)", "lambda gradient: gradient")
    ),
    ("sot_qk_scale forward float64", layers.Attention, "__init__")
    + (" if qk_scale is None else qk_scale", "", "blocks.0"),
    ("sot_linear_224 forward float64", token_embed.PatchEmbedding, "forward", "self.proj(images)")
    + ("self.proj(images.transpose([0, 1, 3, 2]))", "embed"),
    # samples with few valid words, or none
    *(
        (f"head_{pooling}_few_words forward float64", functional, "token_weights", *change, place)
        + (said,)
        for pooling, place in POOLINGS.items()
        for *change, said in ((".clip(min=1.0)", "", "nan"), (VALID, f"(0 * {VALID} + 11)", ""))
    ),
    ("head_gcp_few_words forward float64", functional, "auto_covariance", 'if scale == "tokens":')
    + ("if False:", "head.covariance"),
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: f"{change[0]} {change[4]}")
def test_a_change_is_caught_and_placed(caught, change):
    caught(*change)


def test_another_default_window_does_not_hold_the_reference_s_tables(run_case, monkeypatch):
    monkeypatch.setitem(SwinConfig.__init__.__kwdefaults__, "window_size", 8)
    with pytest.raises(
        ValueError, match=r"relative_position_bias_table of shape \(225, 2\): does not fit"
    ):
        run_case("swin_plain", "forward", "float64")


def test_every_activation_that_is_accepted_has_a_case():
    def accepted(name):
        try:
            EncoderConfig(hidden_act=name)
        except ValueError:
            return False
        return True

    cases = {c.options.get("hidden_act", "gelu") for c in CASES if isinstance(c, ModelCase)}
    assert {name for name in ACTIVATIONS if accepted(name)} <= cases
