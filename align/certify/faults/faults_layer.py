"""Faults of layers: activations, residuals, pools, convolutions, dropout."""

from __future__ import annotations

from align.certify import spoiling
from align.certify.planting import attribute, changed, edited
from align.certify.scene import Fault

_DISTIL = "distilbert_paddle"
_BLOCK = f"{_DISTIL}:Block.forward"
_RESNET = "align.certify.ports.port_resnet"
_SEGMENTER = "align.certify.ports.port_segmenter:Segmenter.forward"

LAYERS = (
    Fault(
        "gelu_tanh",
        "model",
        "distilbert",
        "forward",
        "layers.0*",
        r"GELU \(tanh",
        edited(_BLOCK, "F.gelu(self.lin1(x))", "F.gelu(self.lin1(x), approximate=True)"),
    ),
    Fault(
        "relu_instead_of_gelu",
        "model",
        "bert",
        "forward",
        "bert.encoder.layers.0*",
        r"ReLU.*GELU",
        changed(spoiling.activation("bert.encoder.layers", "relu")),
    ),
    Fault(
        "activation_missing",
        "model",
        "resnet",
        "forward",
        "layer1.0*",
        r"act2 is never called|PyTorch applies ReLU|ReLU is missing",
        edited(
            f"{_RESNET}:BasicBlock.forward",
            "self.act2(x + shortcut)",
            "x + shortcut if self.downsample is not None else self.act2(x + shortcut)",
        ),
    ),
    Fault(
        "silu_instead_of_swish_with_slope",
        "model",
        "segmenter",
        "forward",
        "*",
        r"GELU \(erf\), PyTorch SiLU",
        edited(
            _SEGMENTER, "F.silu(self.deep(self.pool(fine)))", "F.gelu(self.deep(self.pool(fine)))"
        ),
    ),
    Fault(
        "residual_missing",
        "model",
        "distilbert",
        "forward",
        "layers.0",
        r"input 0 is not added",
        edited(
            _BLOCK, "self.norm1(x + self.attention(x, mask))", "self.norm1(self.attention(x, mask))"
        ),
    ),
    Fault(
        "residual_added_twice",
        "model",
        "vit_sum",
        "forward",
        "blocks.0",
        r"added once too often",
        edited(
            "sot_paddle.backbones.vit:Block.forward",
            "x = x + self.drop_path(self.attn",
            "x = x + x + self.drop_path(self.attn",
        ),
    ),
    Fault(
        "shortcut_after_the_activation",
        "model",
        "resnet",
        "forward",
        "layer1.0*",
        r"downsample is not added",
        edited(
            f"{_RESNET}:BasicBlock.forward", "self.act2(x + shortcut)", "self.act2(x) + shortcut"
        ),
    ),
    Fault(
        "bias_missing",
        "model",
        "bert",
        "forward",
        "bert.encoder.layers.1.linear2",
        r"bias is not added",
        changed(spoiling.without_bias("bert.encoder.layers.1.linear2")),
    ),
    Fault(
        "square_weight_transposed",
        "model",
        "distilbert",
        "forward",
        "layers.1.attention.key",
        r"transposed",
        changed(spoiling.transposed("layers.1.attention.key")),
    ),
    Fault(
        "average_pool_exclusive",
        "model",
        "segmenter",
        "forward",
        "pool",
        r"exclusive",
        edited("align.certify.ports.port_segmenter:Segmenter.__init__", ", exclusive=False", ""),
    ),
    Fault(
        "max_pool_ceil_mode",
        "model",
        "resnet",
        "forward",
        "maxpool",
        r"ceil|padding: Paddle has 0",
        edited(
            f"{_RESNET}:ResNet.__init__",
            "nn.MaxPool2D(3, stride=2, padding=1)",
            "nn.MaxPool2D(3, stride=2, padding=0, ceil_mode=True)",
        ),
    ),
    Fault(
        "pool_maximum_instead_of_mean",
        "model",
        "resnet",
        "forward",
        "*",
        r"maximum|max instead of mean",
        edited(f"{_RESNET}:ResNet.forward", "x.mean(axis=[2, 3])", "x.max(axis=[2, 3])"),
    ),
    Fault(
        "interpolation_align_corners",
        "model",
        "segmenter",
        "forward",
        "*",
        r"align_corners",
        edited(_SEGMENTER, "align_corners=False", "align_corners=True"),
    ),
    Fault(
        "convolution_stride_place",
        "model",
        "resnet",
        "forward",
        "conv1.0",
        r"stride: Paddle",
        edited(
            f"{_RESNET}:ResNet.__init__",
            "conv3(3, tier, 2),\n            nn.BatchNorm2D(tier),\n"
            "            nn.ReLU(),\n            conv3(tier, stem),",
            "conv3(3, tier),\n            nn.BatchNorm2D(tier),\n"
            "            nn.ReLU(),\n            conv3(tier, stem, 2),",
        ),
    ),
    Fault(
        "convolution_padding_mode",
        "model",
        "segmenter",
        "forward",
        "stem",
        r"padding|mode of pad",
        edited(
            "align.certify.ports.port_segmenter:Segmenter.__init__",
            "nn.Conv2D(3, width, 3, padding=1)",
            'nn.Conv2D(3, width, 3, padding=1, padding_mode="reflect")',
        ),
    ),
    Fault(
        "channels_joined_in_another_order",
        "model",
        "segmenter",
        "forward",
        "*",
        r"order of the parts",
        edited(_SEGMENTER, "[fine, self.up(coarse)]", "[self.up(coarse), fine]"),
    ),
    Fault(
        "dropout_active_in_eval",
        "model",
        "vit_sum",
        "forward",
        "pos_drop",
        r"dropout is active",
        changed(spoiling.dropout_always("pos_drop", 0.25)),
    ),
    Fault(
        "dropout_downscale_in_infer",
        "model",
        "bert",
        "forward",
        "head.dropout",
        r"downscale_in_infer",
        changed(spoiling.dropout_downscaled("head.dropout", 0.1)),
    ),
    Fault(
        "activation_before_the_norm",
        "model",
        "segmenter",
        "forward",
        "(model)",
        r"order of the layers|norm before or after",
        edited(
            _SEGMENTER, "self.act(self.norm(self.stem(x)))", "self.norm(self.act(self.stem(x)))"
        ),
    ),
    Fault(
        "interpolation_nearest",
        "model",
        "segmenter",
        "forward",
        "(model)",
        r"nearest, PyTorch bilinear|mode",
        edited(_SEGMENTER, 'mode="bilinear", align_corners=False', 'mode="nearest"'),
    ),
    Fault(
        "layer_skipped",
        "model",
        "bert",
        "forward",
        "(model)",
        r"layers\.1 is never called",
        edited(
            "sot_paddle.backbones.bert:BertEncoder.forward",
            "enumerate(self.encoder.layers)",
            "enumerate(list(self.encoder.layers)[:-1])",
        ),
    ),
)

DROPOUT = (
    Fault(
        "dropout_probability",
        "model",
        "finetune",
        "forward",
        "head.dropout",
        r"0\.4.*0\.25",
        attribute("head.dropout", "p", 0.4),
    ),
    Fault(
        "dropout_missing",
        "model",
        "finetune",
        "forward",
        "head*",
        r"dropout.*(as it is, Paddle does not|never called|missing|left out)",
        edited(
            "sot_paddle.heads.fusion:PoolerHead.forward",
            "self.cls_fc(self.dropout(pooled))",
            "self.cls_fc(pooled)",
        ),
    ),
    Fault(
        "dropout_mode_in_training",
        "model",
        "finetune",
        "forward",
        "head.dropout",
        r"downscale_in_infer",
        attribute("head.dropout", "mode", "downscale_in_infer"),
    ),
    Fault(
        "dropout_before_the_dense_layer",
        "model",
        "finetune",
        "forward",
        "head*",
        r"dropout.*(twice|before|once more|also)",
        edited(
            "sot_paddle.heads.fusion:PoolerHead.forward",
            "paddle.tanh(self.dense(features.cls))",
            "paddle.tanh(self.dense(self.dropout(features.cls)))",
        ),
    ),
)

FAULTS = (*LAYERS, *DROPOUT)
