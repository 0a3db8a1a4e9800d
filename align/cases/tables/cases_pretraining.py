"""The part of the table with pre-training: instances, masking, heads and losses; no logic."""

from __future__ import annotations

from typing import Any

from align.cases.kinds.case_kinds import ModelCase, value_cases
from align.cases.tables.model_options import BERT, HEAD, encoder

_CONV: dict[str, Any] = {
    **encoder(12, 1, 20, 30, 18),
    **HEAD,
    "embedding_size": 9,
    "pad_token_id": 29,
    "attention_kernel": "qk_convq_convk 2",
}


def _model(name: str, model: str, options: dict[str, Any], **more: Any) -> ModelCase:
    return ModelCase(
        name, model, options, values="pretraining.pretraining_values:pretraining", **more
    )


def _both(name: str, model: str, options: dict[str, Any], **given: Any) -> tuple[Any, ...]:
    """In float64 everything, in float32 the scores and the sums of an evaluation."""
    steps = ("forward", "backward", "training")
    return (
        _model(name, model, options, steps=steps, dtypes=("float64",), given=given),
        _model(
            f"{name}_float32", model, options, steps=("forward",), dtypes=("float32",), given=given
        ),
    )


PRETRAINING = (
    *value_cases(
        "pretraining.instance_values:instances",
        {
            "data_instances": {"max_seq_length": 24, "max_predictions": 3},
            "data_instances_one_masked": {
                "max_seq_length": 24,
                "max_predictions": 3,
                "masked_share": 0.01,
            },
            "data_instances_one_document": {
                "max_seq_length": 16,
                "max_predictions": 20,
                "documents": 1,
            },
        },
    ),
    *value_cases("pretraining.pretraining_values:masks", {"data_masked_words": {}}),
    *_both("pretraining_bert", "bert_base", BERT, judged=True),
    *_both("pretraining_conv_bert", "conv_bert_base", _CONV, judged=False),
    _model(
        "pretraining_one_word",
        "conv_bert_base",
        _CONV,
        steps=("forward", "backward"),
        dtypes=("float64",),
        given={"judged": False, "words": 1},
    ),
    _model(
        "pretraining_no_word",
        "conv_bert_base",
        _CONV,
        steps=("forward",),
        dtypes=("float64",),
        given={"judged": False, "words": 0},
    ),
    _model(
        "pretraining_every_place",
        "bert_base",
        BERT,
        steps=("backward",),
        dtypes=("float64",),
        given={"judged": True, "every_place": True, "factors": (0.5, 3.0)},
    ),
)
