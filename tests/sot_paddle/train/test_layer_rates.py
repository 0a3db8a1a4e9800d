"""Rates of the layers: none left over, a rate of zero, options. Values: tests/parity."""

from __future__ import annotations

import paddle
import pytest

from sot_paddle.backbones.families import TEXT_BACKBONES
from sot_paddle.registry import create_model
from sot_paddle.tasks.document_options import DocumentTrainConfig
from sot_paddle.train import document_command
from sot_paddle.train.document_command import layer_ratios
from sot_paddle.train.feeding import Pace

TINY = {"hidden_size": 8, "num_hidden_layers": 3, "num_attention_heads": 2, "vocab_size": 20}
TINY |= {"intermediate_size": 12, "max_position_embeddings": 9}
GIVEN = {"task_name": "TREC", "data_dir": "d", "model_name_or_path": "m", "output_dir": "o"}


def config(**options) -> DocumentTrainConfig:
    return DocumentTrainConfig(**GIVEN, **options)


def test_a_rate_of_zero_keeps_a_layer_as_it_is() -> None:
    model = create_model("bert_base", 2, **TINY)
    options = config(
        discr=True, learning_rate=1e-2, layer_learning_rate=(0.0, 1e-2, 0.0), warmup_proportion=0.0
    )
    optimizer, _ = document_command.optimizer(options, model, Pace(2, 1, 64), 2)
    before = {name: p.numpy() for name, p in model.named_parameters()}
    model(paddle.to_tensor([[2, 5, 6]])).sum().backward()
    optimizer.step()
    moved = {name for name, p in model.named_parameters() if (p.numpy() != before[name]).any()}
    assert any(".layers.1." in name for name in moved)
    assert not any(".layers.0." in name or ".layers.2." in name for name in moved)


@pytest.mark.parametrize("name", sorted(TEXT_BACKBONES))
def test_every_backbone_knows_its_layers(name: str) -> None:
    backbone = TEXT_BACKBONES[name]
    sizes = {**TINY, "intermediate_size": 32, "pad_token_id": 1}
    if backbone.defaults(next(iter(backbone.presets)))["type_vocab_size"] == 1:
        sizes["type_vocab_size"] = 1
    model = create_model(next(iter(backbone.presets)), 2, **sizes)
    found = layer_ratios(model, [2.0, 3.0, 4.0], 1.0)
    counts = [sum(value == rate for value in found.values()) for rate in (2.0, 3.0, 4.0)]
    assert counts[0] > 3
    assert len(set(counts)) == 1
    with pytest.raises(ValueError, match="layer_learning_rate must be 1 or 3 numbers, got 2"):
        layer_ratios(model, [1.0, 2.0], 1.0)


def test_steps_of_the_schedule_are_those_of_the_original() -> None:
    def steps(rows: int, accumulation: int = 1, **options) -> int:
        pace = Pace(-(-rows // 32), accumulation, rows)
        return document_command.schedule_steps(config(**options), pace, 99)

    assert steps(100) == int(100 / 32 * 3) == 9  # the run has 12
    assert steps(64, 2) == steps(64, 2, gradient_accumulation_steps=50) == 3
    assert steps(5) == 1
    assert steps(100, max_steps=7) == steps(100, paddle_compat=True) == 99


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"layer_learning_rate": (1e-5,)}, "means nothing without discr"),
        ({"discr": True, "learning_rate": 0.0}, "needs a learning_rate above 0"),
        ({"discr_blocks": True}, "needs discr and goes by learning_rate alone"),
        ({"paddle_compat": True, "lr_scheduler": "cosine"}, "optimizer and rates: leave lr_sch"),
        ({"correct_bias": False}, "correct_bias=false is an option of optimizer hf_adamw"),
        ({"layers": (-1, 3)}, "layers -1 stands alone"),
        ({"pooling_type": "max"}, "pooling_type needs layers"),
        ({"label_column": "topic"}, "are for task_name own"),
    ],
)
def test_options_that_contradict_each_other(options, match) -> None:
    with pytest.raises(ValueError, match=match):
        config(**options)
