"""The language models beside BERT: built, forward, gradients, optimizer, training; no logic.

Those of the quick suite are tiny.
"""

from __future__ import annotations

from typing import Any

from align.cases.kinds.case_kinds import Batch, Case, ModelCase
from align.cases.tables.model_options import HEAD, dropped_text_case, encoder

_ALL = ("forward", "backward", "optimizer", "training")
_TINY = {**encoder(12, 1, 20, 30, 18), **HEAD}
_SMALL = {**encoder(48, 3, 96, 100, 64), "q_dim": 12, "k_dim": 8}
_DEEP = {**_SMALL, "num_hidden_layers": 12, "hidden_size": 64, "intermediate_size": 144}
_MASKED = {"mask_padding": True}


def _of_the_long_suite(
    family: str, model: str, small: dict[str, Any], **plain: Any
) -> tuple[ModelCase, ...]:
    """Both heads in training and in evaluation; ``plain``: options of a plain one in training."""
    mgcrp = f"{model}_mgcrp"
    return (
        ModelCase(f"{family}_plain", model, {**small, **plain}, steps=_ALL, quick=False),
        ModelCase(f"{family}_plain_eval", model, small, train=False, quick=False),
        ModelCase(f"{family}_mgcrp", mgcrp, small, steps=_ALL, quick=False),
        ModelCase(
            f"{family}_mgcrp_mask_padding_eval",
            mgcrp,
            {**small, **_MASKED},
            train=False,
            quick=False,
        ),
    )


_ROBERTA: dict[str, Any] = {"type_vocab_size": 1, "pad_token_id": 1}
_ROBERTA_TINY = {**_TINY, **_ROBERTA}
_ROBERTA_SMALL = {**_SMALL, **_ROBERTA}
_ROBERTA_CASES: tuple[Case, ...] = (
    ModelCase(
        "roberta_mgcrp_tiny",
        "roberta_base_mgcrp",
        _ROBERTA_TINY,
        dtypes=("float64",),
    ),
    ModelCase(
        "roberta_plain_tiny",
        "roberta_base",
        {**_ROBERTA_TINY, "pooling": "two_layer"},
        dtypes=("float64",),
    ),
    *_of_the_long_suite("roberta", "roberta_base", _ROBERTA_SMALL, pooling="two_layer"),
    ModelCase(
        "roberta_frozen_encoder",
        "roberta_base_mgcrp",
        {**_ROBERTA_TINY, "freeze_encoder": True},
        steps=("backward", "training"),
        quick=False,
    ),
    *(
        ModelCase(f"roberta_large{head}", f"roberta_large{head}", _ROBERTA_TINY, quick=False)
        for head in ("", "_mgcrp")
    ),
    ModelCase("roberta_mgcrp_12_layers", "roberta_base_mgcrp", {**_DEEP, **_ROBERTA}, quick=False),
    dropped_text_case("roberta", "roberta_base", _ROBERTA_TINY),
)

_SPANBERT_CASES: tuple[Case, ...] = (
    ModelCase(
        "spanbert_tiny_eval",
        "spanbert_base",
        _TINY,
        steps=("forward",),
        train=False,
        dtypes=("float64",),
    ),
    ModelCase("spanbert_plain", "spanbert_base", _SMALL, steps=_ALL, quick=False),
    ModelCase("spanbert_mgcrp", "spanbert_base_mgcrp", _SMALL, steps=_ALL, quick=False),
    *(
        ModelCase(f"spanbert_large{head}", f"spanbert_large{head}", _TINY, quick=False)
        for head in ("", "_mgcrp")
    ),
)

_GPT: dict[str, Any] = {"type_vocab_size": 1}
_GPT_TINY = {**_TINY, **_GPT, "intermediate_size": 48}
_GPT_SMALL = {**_SMALL, **_GPT, "intermediate_size": 192}
_GPT_CASES: tuple[Case, ...] = (
    ModelCase(
        "gpt_mgcrp_tiny",
        "openai_gpt_mgcrp",
        _GPT_TINY,
        dtypes=("float64",),
    ),
    ModelCase(  # a row of one token, and one that is padding from the first on
        "gpt_plain_few_words",
        "openai_gpt",
        {**_GPT_TINY, "pooling": "score"},
        steps=("forward",),
        batch=Batch(lengths=(7, 2, 1, 0), length=8),
        dtypes=("float64",),
    ),
    ModelCase(
        "gpt_masked_token",
        "openai_gpt_mgcrp",
        {**_GPT_TINY, **_MASKED},
        steps=("forward",),
        batch=Batch(lengths=(8, 5, 4, 6), length=8, hole=2),
        dtypes=("float64",),
    ),
    *_of_the_long_suite("gpt", "openai_gpt", _GPT_SMALL),
    ModelCase(
        "gpt_frozen_encoder",
        "openai_gpt_mgcrp",
        {**_GPT_TINY, "freeze_encoder": True},
        steps=("backward",),
        dtypes=("float64",),
    ),
    *(
        ModelCase(
            f"gpt_act_{name}",
            "openai_gpt",
            {**_GPT_TINY, "hidden_act": name},
            dtypes=("float64",),
            quick=False,
        )
        for name in ("relu", "silu")
    ),
    ModelCase(
        "gpt_mgcrp_12_layers",
        "openai_gpt_mgcrp",
        {**_DEEP, **_GPT, "intermediate_size": 256},
        quick=False,
    ),
    dropped_text_case("gpt", "openai_gpt", _GPT_TINY),
)

TEXT_MODELS: tuple[Case, ...] = (*_ROBERTA_CASES, *_SPANBERT_CASES, *_GPT_CASES)
