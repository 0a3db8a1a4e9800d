"""Faults of normalisation layers: epsilon, variance, statistics, place."""

from __future__ import annotations

from align.certify import spoiling
from align.certify.planting import attribute, changed, edited
from align.certify.scene import Fault

_DISTIL = "distilbert_paddle"
_BLOCK = f"{_DISTIL}:Block.forward"
_ENCODER = "align.certify.ports.port_encoder:Encoder"

FAULTS = (
    Fault(
        "layer_norm_epsilon",
        "model",
        "distilbert",
        "forward",
        "layers.0.norm2",
        r"epsilon.*1e-05.*1e-12",
        edited(
            f"{_DISTIL}:Block.__init__",
            "self.norm2 = nn.LayerNorm(dim, epsilon=eps)",
            "self.norm2 = nn.LayerNorm(dim)",
        ),
    ),
    Fault(
        "layer_norm_epsilon_of_one_layer",
        "model",
        "bert",
        "forward",
        "bert.encoder.layers.1.norm1",
        r"epsilon.*1e-0?5.*1e-12",
        attribute("bert.encoder.layers.1.norm1", "_epsilon", 1e-5),
    ),
    Fault(
        "vit_layer_norm_epsilon",
        "model",
        "vit_sum",
        "forward",
        "norm",
        r"epsilon.*1e-0?5.*1e-0?6",
        attribute("norm", "epsilon", 1e-5),
    ),
    Fault(
        "layer_norm_unbiased_variance",
        "model",
        "vit_sum",
        "forward",
        "blocks.0.norm1",
        r"n - 1",
        edited(
            "sot_paddle.heads.power_norm:RowLayerNorm.forward",
            "var = (centred * centred).mean(axis=-1, keepdim=True)",
            "var = x.var(axis=-1, keepdim=True, unbiased=True)",
        ),
    ),
    Fault(
        "layer_norm_not_centred",
        "model",
        "vit_sum",
        "forward",
        "blocks.0.norm1",
        r"RMS norm \(the mean is not subtracted\)",
        edited(
            "sot_paddle.heads.power_norm:RowLayerNorm.forward",
            "centred = x - x.mean(axis=-1, keepdim=True)",
            "centred = x",
        ),
    ),
    Fault(
        "norm_before_instead_of_after",
        "model",
        "distilbert",
        "forward",
        "layers.0",
        r"norm before or after",
        edited(
            _BLOCK,
            "self.norm1(x + self.attention(x, mask))",
            "x + self.attention(self.norm1(x), mask)",
        ),
    ),
    Fault(
        "norm_after_instead_of_before",
        "model",
        "encoder",
        "forward",
        "layers.0",
        r"norm before or after",
        edited(f"{_ENCODER}.__init__", "normalize_before=True", "normalize_before=False"),
    ),
    Fault(
        "norm_missing",
        "model",
        "distilbert",
        "forward",
        "*",
        r"norm .*left out|norm is never called",
        edited(f"{_DISTIL}:DistilBert.forward", "x = self.norm(", "x = ("),
    ),
    Fault(
        "batch_norm_epsilon",
        "model",
        "resnet",
        "forward",
        "layer2.0.bn1",
        r"epsilon.*0.001.*1e-0?5",
        attribute("layer2.0.bn1", "_epsilon", 1e-3),
    ),
    Fault(
        "batch_norm_momentum_of_pytorch",
        "model",
        "resnet_train",
        "forward",
        "layer1.0.bn1",
        r"momentum.*convention",
        attribute("layer1.0.bn1", "_momentum", 0.1),
    ),
    Fault(
        "batch_norm_running_statistics_in_training",
        "model",
        "resnet_train",
        "forward",
        "bn1",
        r"Paddle computes batch norm \(running statistics\)|running statistics in training",
        changed(spoiling.frozen_statistics("bn1")),
    ),
    Fault(
        "batch_norm_statistics_of_the_batch_in_eval",
        "model",
        "resnet",
        "forward",
        "bn1",
        r"Paddle computes batch norm \(statistics of the batch\)|those of the batch",
        changed(spoiling.batch_statistics("bn1")),
    ),
    Fault(
        "group_norm_groups",
        "model",
        "segmenter",
        "forward",
        "norm",
        r"2 groups|num_groups: .* 2, ",
        attribute("norm", "_num_groups", 2),
    ),
    Fault(
        "norm_of_another_place",
        "model",
        "distilbert",
        "forward",
        "layers.0",
        r"norm1 is twice called|norm2 is never called|norm.*left out",
        edited(f"{_DISTIL}:Block.forward", "self.norm2(x +", "self.norm1(x +"),
    ),
    Fault(
        "batch_norm_missing",
        "model",
        "resnet",
        "forward",
        "layer1.0",
        r"bn2 is never called|bn2.*left out",
        edited(
            "align.certify.ports.port_resnet:BasicBlock.forward",
            "self.bn2(self.conv2(x))",
            "self.conv2(x)",
        ),
    ),
    Fault(
        "final_norm_missing",
        "model",
        "encoder",
        "forward",
        "(model)",
        r"output of norm|norm is never called",
        edited(f"{_ENCODER}.forward", "self.norm(x)", "x"),
    ),
)
