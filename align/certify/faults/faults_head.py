"""Faults of the second-order head: covariance, power norm, fusion, padded words."""

from __future__ import annotations

from align.certify.planting import attribute, edited
from align.certify.scene import Fault

_FUNCTIONAL = "sot_paddle.functional"
_POOLING = "sot_paddle.heads.pooling"
_FUSION = "sot_paddle.heads.fusion"
_SV = f"{_FUNCTIONAL}:sv_power_norm"
_MULTI = f"{_POOLING}:MultiHeadCrossCovariance.forward"
_QK = f"{_POOLING}:QKCrossCovariance.forward"

COVARIANCE = (
    Fault(
        "w_and_r_swapped",
        "head",
        "vit_sum",
        "forward",
        "head.pooling",
        r"swapped",
        edited(_MULTI, "F.cross_covariance(w, r,", "F.cross_covariance(r, w,"),
    ),
    Fault(
        "auto_instead_of_cross_covariance",
        "head",
        "vit_sum",
        "forward",
        "head.pooling",
        r"auto-covariance|symmetric|same factor twice",
        edited(_MULTI, "F.cross_covariance(w, r,", "F.cross_covariance(w, w,"),
    ),
    Fault(
        "covariance_not_centred",
        "head",
        "bert_head",
        "forward",
        "head.pooling*",
        r"centr|mean is not subtracted",
        edited(_QK, 'centering="channel"', 'centering="none"'),
    ),
    Fault(
        "covariance_centred_by_channel",
        "head",
        "vit_sum",
        "forward",
        "head.pooling",
        r"centering|centred",
        attribute("head.pooling", "centering", "channel"),
    ),
    Fault(
        "covariance_over_n_minus_1",
        "head",
        "vit_sum",
        "forward",
        "head.pooling",
        r"n - 1",
        edited(
            f"{_FUNCTIONAL}:cross_covariance",
            "transpose_x=True) / count",
            "transpose_x=True) / (count - 1)",
        ),
    ),
    Fault(
        "covariance_not_divided",
        "head",
        "vit_concat",
        "forward",
        "head.pooling",
        r"1/N",
        edited(f"{_FUNCTIONAL}:cross_covariance", "transpose_x=True) / count", "transpose_x=True)"),
    ),
    Fault(
        "auto_covariance_over_tokens",
        "head",
        "vit_gcp",
        "forward",
        "head.pooling",
        r"0\.8 x|scale: Paddle's layer has 'tokens'",
        attribute("head.pooling", "scale", "tokens"),
    ),
    Fault(
        "heads_interleaved",
        "head",
        "vit_sum",
        "forward",
        "head.pooling",
        r"order of the sizes|heads",
        edited(
            _MULTI,
            "reshape([batch, length, 2, self.num_heads, self.wr_dim])\n"
            "        parts = parts.transpose([2, 0, 3, 1, 4])",
            "reshape([batch, length, 2, self.wr_dim, self.num_heads])\n"
            "        parts = parts.transpose([2, 0, 4, 1, 3])",
        ),
    ),
    Fault(
        "w_and_r_split_inside_the_heads",
        "head",
        "vit_concat",
        "forward",
        "head.pooling",
        r"order of the sizes|heads",
        edited(
            _MULTI,
            "reshape([batch, length, 2, self.num_heads, self.wr_dim])\n"
            "        parts = parts.transpose([2, 0, 3, 1, 4])",
            "reshape([batch, length, self.num_heads, 2, self.wr_dim])\n"
            "        parts = parts.transpose([3, 0, 2, 1, 4])",
        ),
    ),
    Fault(
        "covariance_relu_missing",
        "head",
        "bert_head",
        "forward",
        "head.pooling*",
        r"ReLU",
        edited(
            _QK,
            "k = nn.functional.relu(self.k_norm(self.k_proj(tokens), mask))",
            "k = self.k_norm(self.k_proj(tokens), mask)",
        ),
    ),
    Fault(
        "padded_words_pooled",
        "head",
        "bert_head_masked",
        "forward",
        "head.pooling*",
        r"mask|left out",
        edited(f"{_FUSION}:WordHead.represent", "mask if self.mask_padding else None", "None"),
    ),
    Fault(
        "padded_words_counted",
        "head",
        "bert_head_masked",
        "forward",
        "head.pooling*",
        r"a count",
        edited(
            f"{_FUNCTIONAL}:cross_covariance",
            "x1.shape[1] if mask is None else token_weights(mask, x1.dtype)[1]",
            "x1.shape[1]",
        ),
    ),
    Fault(
        "flattened_by_columns",
        "head",
        "vit_sum",
        "forward",
        "head.pooling",
        r"axes of transpose|another order",
        edited(_MULTI, "_flatten(normed,", "_flatten(normed.transpose([0, 2, 1]),"),
    ),
)

POWER_NORM = (
    Fault(
        "svpn_exponent",
        "head",
        "vit_sum",
        "forward",
        "head.pooling.norm",
        r"alpha|exponent",
        attribute("head.pooling.norm", "alpha", 0.3),
    ),
    Fault(
        "svpn_without_deflation",
        "head",
        "vit_sum",
        "forward",
        "head.pooling.norm",
        r"deflat",
        edited(_SV, "rest = rest - sigma * outer", "rest = rest"),
    ),
    Fault(
        "svpn_remainder_missing",
        "head",
        "bert_head",
        "forward",
        "head.pooling.norm",
        r"remainder",
        edited(_SV, "total = total + rest / (_power(sigma, 1.0 - alpha) + 1e-5)", "pass"),
    ),
    Fault(
        "svpn_number_of_singular_values",
        "head",
        "vit_sum",
        "forward",
        "head.pooling.norm",
        r"num_sv",
        attribute("head.pooling.norm", "num_sv", 1),
    ),
    Fault(
        "svpn_number_of_iterations",
        "head",
        "vit_sum",
        "forward",
        "head.pooling.norm",
        r"num_iter",
        attribute("head.pooling.norm", "num_iter", 3),
    ),
    Fault(
        "svpn_floor_on_the_value",
        "head",
        "bert_head",
        "forward",
        "head.pooling.norm",
        r"floor|1e-0?5|epsilon",
        edited(_SV, "(_power(sigma, 1.0 - alpha) + 1e-5)", "_power(sigma + 1e-5, 1.0 - alpha)"),
    ),
    Fault(
        "svpn_start_vector_of_ones",
        "head",
        "vit_concat",
        "forward",
        "head.pooling.norm",
        r"norm\.weight is not used",
        edited(
            "sot_paddle.heads.power_norm:SvPN.forward",
            "if self.weight is None else self.weight",
            "",
        ),
    ),
    Fault(
        "svpn_graph_cut_at_the_singular_value",
        "head",
        "vit_sum",
        "backward",
        "head.pooling.norm",
        r"detach\(\) cuts the graph",
        edited(
            _SV,
            "term = _power(sigma, alpha) * outer",
            "term = _power(sigma.detach(), alpha) * outer",
        ),
    ),
    Fault(
        "svpn_diag_embed",
        "head",
        "vit_concat",
        "backward",
        "head.pooling.norm",
        r"diag_embed has no gradient",
        edited(
            _SV,
            "term = _power(sigma, alpha) * outer",
            "values = paddle.diag_embed(_power(sigma, alpha)[:, :, 0])\n"
            "            term = left @ values @ right.transpose([0, 2, 1])",
        ),
    ),
    Fault(
        "matrix_root_iterations",
        "head",
        "vit_gcp",
        "forward",
        "head.pooling.norm",
        r"num_iter",
        attribute("head.pooling.norm", "num_iter", 2),
    ),
    Fault(
        "matrix_root_without_the_trace",
        "head",
        "vit_gcp",
        "forward",
        "head.pooling.norm",
        r"a trace",
        edited(f"{_FUNCTIONAL}:matrix_sqrt", "paddle.sqrt(trace) * y", "y"),
    ),
    Fault(
        "upper_triangle_by_columns",
        "head",
        "vit_gcp",
        "forward",
        "head.pooling",
        r"another order",
        edited(
            f"{_FUNCTIONAL}:triu_vectorize",
            "for row in range(size) for column in range(row, size)",
            "for column in range(size) for row in range(column + 1)",
        ),
    ),
    Fault(
        "token_norm_momentum",
        "head",
        "bert_head",
        "forward",
        "head.pooling.q_norm",
        r"momentum.*convention",
        attribute("head.pooling.q_norm", "momentum", 0.1),
    ),
    Fault(
        "token_norm_biased_running_variance",
        "head",
        "bert_head",
        "forward",
        "head.pooling.q_norm",
        r"biased|n - 1",
        edited(
            f"{_POOLING}:TokenBatchNorm._update_running",
            "var * (count / (count - 1.0).clip(min=1.0))",
            "var",
        ),
    ),
    Fault(
        "token_norm_epsilon",
        "head",
        "bert_head",
        "forward",
        "head.pooling*",
        r"epsilon",
        attribute("head.pooling.k_norm", "epsilon", 1e-3),
    ),
    Fault(
        "svpn_vectors_without_the_root",
        "head",
        "vit_sum",
        "forward",
        "head.pooling.norm",
        r"root",
        edited(
            f"{_FUNCTIONAL}:_unit", "paddle.sqrt(square.clip(min=1e-24))", "square.clip(min=1e-24)"
        ),
    ),
)

FUSION = (
    Fault(
        "class_scores_missing",
        "head",
        "vit_sum",
        "forward",
        "head",
        r"cls_fc is not added",
        edited(f"{_FUSION}:SumHead.forward", " + self.cls_logits(features, taps)", ""),
    ),
    Fault(
        "concatenation_order",
        "head",
        "vit_concat",
        "forward",
        "head",
        r"order of the parts",
        edited(
            f"{_FUSION}:ConcatHead.forward",
            "[features.cls.astype(pooled.dtype), pooled]",
            "[pooled, features.cls.astype(pooled.dtype)]",
        ),
    ),
    Fault(
        "class_token_pooled_last",
        "head",
        "vit_gcp",
        "forward",
        "head*",
        r"order of the parts|\(roll\)",
        edited(
            f"{_FUSION}:AllTokensHead.forward",
            "[features.cls.unsqueeze(1), features.words]",
            "[features.words, features.cls.unsqueeze(1)]",
        ),
    ),
    Fault(
        "words_counted_from_the_second",
        "head",
        "bert_head",
        "forward",
        "(model)",
        r"token|index|shape|shorter|longer",
        edited(
            "sot_paddle.backbones.bert:BertEncoder.forward",
            "hidden[:, 1:], words_mask",
            "hidden[:, 2:], words_mask",
        ),
    ),
)

FAULTS = (*COVARIANCE, *POWER_NORM, *FUSION)
