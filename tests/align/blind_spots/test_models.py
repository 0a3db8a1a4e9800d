"""Faults in shapes, masks and options of models: each caught by its case, at the right place."""

import numpy as np
import paddle
import pytest

from align.cases.kinds.case_kinds import ModelCase
from align.cases.tables.cases import CASES
from align.cases.tables.cases_models import MODELS, TIMM
from sot_paddle import functional
from sot_paddle.backbones import layers, paddlenlp_encoder, swin_blocks, token_embed
from sot_paddle.config import EncoderConfig
from sot_paddle.heads import fusion
from sot_paddle.vision_config import SwinConfig

ACTIVATIONS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu", "swish", "tanh")


@pytest.fixture
def places(run_case, failed):
    """The first failing comparison of the two steps of a case."""

    def first(case):
        results = [run_case(case, step, "float64") for step in ("forward", "backward")]
        return [next(iter(failed(result)), None) for result in results]

    return first


@pytest.mark.parametrize("case", [c.name for c in (*MODELS, *TIMM)])
@pytest.mark.parametrize("step", ["forward", "backward"])
def test_the_cases_pass_as_the_product_is(case, step, run_case):
    result = run_case(case, step, "float64")
    assert (result.failures, result.problems) == ([], [])


def padded_before(x, amount):
    pads = [amount, 0, amount, 0]
    return paddle.nn.functional.pad(x, pads, data_format="NHWC")


def test_a_padded_grid_padded_on_the_other_side(places, monkeypatch):
    monkeypatch.setattr(swin_blocks, "_pad", padded_before)
    assert places("swin_padded_grid")[0] == "stages.0.blocks.0"
    assert places("timm_swin_padded_grid")[0] == "stages.0.blocks.0"


def test_an_odd_grid_padded_on_the_other_side_before_merging(places, monkeypatch):
    right = swin_blocks.PatchMerging.forward

    def merged(self, x):
        with monkeypatch.context() as here:
            here.setattr(swin_blocks, "_pad", padded_before)
            return right(self, x)

    monkeypatch.setattr(swin_blocks.PatchMerging, "forward", merged)
    assert places("swin_padded_grid")[0] == "stages.1.downsample"


def test_the_mask_of_the_padded_windows_lost(places, monkeypatch):
    right = swin_blocks.shift_mask
    monkeypatch.setattr(swin_blocks, "shift_mask", lambda *sizes: 0.0 * right(*sizes))
    assert places("swin_padded_grid")[0] == "stages.0.blocks.1"
    assert places("swin_window_8")[0] == "stages.0.blocks.1"


def test_the_mask_of_the_grid_without_its_padding(places, monkeypatch):
    """The regions of a 5 x 5 grid, where those of the padded 8 x 8 belong."""

    def unpadded(size, window, shift):
        along = np.arange(size)
        band = (along >= 5 - window).astype(int) + (along >= 5 - shift)
        region = (3 * band[:, None] + band[None, :]).reshape(size // window, window, -1, window)
        region = region.transpose(0, 2, 1, 3).reshape(-1, window**2)
        return np.where(region[:, :, None] != region[:, None, :], swin_blocks.MASKED, 0.0)

    monkeypatch.setattr(swin_blocks, "shift_mask", unpadded)
    assert places("swin_padded_grid")[0] == "stages.0.blocks.1"


def test_windows_of_8_shifted_as_windows_of_7(places, monkeypatch):
    right = swin_blocks.SwinBlock.__init__

    def build(self, config, **more):
        right(self, config, **more)
        if self.shift:
            self.shift = 3

    monkeypatch.setattr(swin_blocks.SwinBlock, "__init__", build)
    assert places("swin_window_8")[0] == "stages.0.blocks.1"


def test_another_default_window_does_not_hold_the_reference_s_tables(run_case, monkeypatch):
    monkeypatch.setitem(SwinConfig.__init__.__kwdefaults__, "window_size", 8)
    with pytest.raises(
        ValueError, match=r"relative_position_bias_table of shape \(225, 2\): does not fit"
    ):
        run_case("swin_plain", "forward", "float64")


@pytest.mark.parametrize("case", ["head_mgcrp_sum_loss_eval", "sot_sum_loss_eval"])
@pytest.mark.parametrize(
    "wrong", [lambda cls, word: cls, lambda cls, word: word, lambda cls, word: (cls + word) / 2]
)
def test_another_combination_of_the_two_scores_in_evaluation(case, wrong, places, monkeypatch):
    def forward(self, features, taps=None):
        word = self.word_logits(features, taps)
        return wrong(self.cls_logits(features, taps), word)

    monkeypatch.setattr(fusion.SumLossHead, "forward", forward)
    assert places(case) == ["logits", "loss"]


def test_the_pair_of_scores_in_evaluation_too(places, monkeypatch):
    """The taps are those of the sum: the pair in place of it, and the loss of two, show it."""

    def forward(self, features, taps=None):
        word = self.word_logits(features, taps)
        return self.cls_logits(features, taps), word

    monkeypatch.setattr(fusion.SumLossHead, "forward", forward)
    assert places("sot_sum_loss_eval") == ["(outputs of the model)", "loss"]


@pytest.mark.parametrize("row", [0, None], ids=["the row of id 0", "no row"])
def test_the_pad_id_ignored(row, places, monkeypatch):
    right = paddlenlp_encoder.zero_row_hook
    hook = right(row) if row is not None else lambda gradient: gradient
    monkeypatch.setattr(paddlenlp_encoder, "zero_row_hook", lambda _: hook)
    assert places("bert_pad_id") == [None, "bert.embeddings.word_embeddings.weight"]


def test_the_scale_of_the_scores_ignored(places, monkeypatch):
    right = layers.Attention.__init__

    def build(self, dim, num_heads, **options):
        right(self, dim, num_heads, **{**options, "qk_scale": None})

    monkeypatch.setattr(layers.Attention, "__init__", build)
    assert places("sot_qk_scale")[0] == "blocks.0"


def test_every_activation_that_is_accepted_has_a_case():
    def accepted(name):
        try:
            EncoderConfig(hidden_act=name)
        except ValueError:
            return False
        return True

    cases = {c.options.get("hidden_act", "gelu") for c in CASES if isinstance(c, ModelCase)}
    assert {name for name in ACTIVATIONS if accepted(name)} <= cases


def unclipped(mask, dtype):
    weights = mask.astype(dtype).unsqueeze(-1)
    return weights, weights.sum(axis=1, keepdim=True)


right_weights = functional.token_weights


def padded_count(mask, dtype):
    weights, count = right_weights(mask, dtype)
    return weights, paddle.full_like(count, mask.shape[1])


PLACES = {
    "mgcrp": "head.covariance",
    "mgcrp_qk": "head.covariance",
    "gap": "head.representation",
    "gcp": "head.covariance",
}


@pytest.mark.parametrize("pooling", PLACES)
def test_no_valid_word_gives_nan(pooling, places, run_case, monkeypatch):
    monkeypatch.setattr(functional, "token_weights", unclipped)
    case = f"head_{pooling}_few_words"
    assert places(case)[0] == PLACES[pooling]
    assert "nan" in run_case(case, "forward", "float64").first_failure.reason.lower()


@pytest.mark.parametrize("pooling", PLACES)
def test_the_padded_words_counted(pooling, places, monkeypatch):
    monkeypatch.setattr(functional, "token_weights", padded_count)
    assert places(f"head_{pooling}_few_words")[0] == PLACES[pooling]


def test_covariance_by_channels_where_tokens_are_asked_for(places, monkeypatch):
    right = functional.auto_covariance
    monkeypatch.setattr(
        functional, "auto_covariance", lambda x, **o: right(x, **{**o, "scale": "published"})
    )
    assert places("head_gcp_few_words")[0] == "head.covariance"


def test_linear_tokens_read_by_columns(places, monkeypatch):
    right = token_embed.PatchEmbedding.forward

    def by_columns(self, images, taps=None):
        return right(self, images.transpose([0, 1, 3, 2]), taps)

    monkeypatch.setattr(token_embed.PatchEmbedding, "forward", by_columns)
    assert places("sot_linear_224")[0] == "embed"
