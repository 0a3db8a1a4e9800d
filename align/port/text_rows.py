"""TEXT_ROWS: BERT, RoBERTa, SpanBERT, GPT and BERT with convolutions; no logic.

Dimensions are tiny and all different, so that a swapped axis cannot pass by accident.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from align.port.row import FLOAT64, HEAD, NO_DROPOUT, Batch, PortRow, Recipe, encoder

_float64_row = functools.partial(PortRow, dtypes=FLOAT64)
_slow_row = functools.partial(PortRow, quick=False)
_MASKED = {"mask_padding": True}
_FROZEN = {"freeze_encoder": True}
_SMALL = {**encoder(48, 3, 96, 100, 64), "q_dim": 12, "k_dim": 8}
_TINY = {**encoder(12, 1, 20, 30, 18), **HEAD}
_DEEP = {**_SMALL, "num_hidden_layers": 12, "hidden_size": 64, "intermediate_size": 144}
_LARGE = {**_SMALL, "hidden_size": 20, "num_hidden_layers": 1, "intermediate_size": 28}
_FULL = {"vocab_size": 500, **NO_DROPOUT}
_BERT = {**encoder(20, 1, 28, 30, 16), **HEAD}
_TWO_LAYERS = encoder(20, 2, 28, 50, 16)
# a decay that float32 holds exactly: Paddle stores the coefficient in float32
_ADAMW = Recipe(optimizer="adamw", schedule="cosine", weight_decay=2.0**-7)
PUBLISHED_ADAPTERS = Recipe(
    weight_decay=0.01, epsilon=1e-6, correct_bias=False, clip_norm=None, warmup_steps=2.3
)
"""C.4: no bias correction, no clipping, a warm-up that is a fraction of a step."""

_BERTS = (
    _slow_row("bert_plain", "bert_base", _SMALL, recipe=Recipe()),
    PortRow("bert_plain_eval", "bert_base", _SMALL, train=False),
    PortRow("bert_plain_regression", "bert_base", _SMALL, num_classes=1),
    PortRow("bert_mgcrp", options=_SMALL, recipe=Recipe()),
    PortRow("bert_mgcrp_eval", options=_SMALL, train=False),
    _slow_row("bert_mgcrp_mask_padding", options={**_SMALL, **_MASKED}, recipe=Recipe()),
    PortRow("bert_mgcrp_mask_padding_eval", options={**_SMALL, **_MASKED}, train=False),
    _slow_row("bert_mgcrp_adamw", options=_SMALL, recipe=_ADAMW),
    PortRow("bert_frozen_encoder", options={**_SMALL, **_FROZEN}, recipe=Recipe()),
    PortRow("bert_large_plain", "bert_large", _LARGE, num_classes=4),
    PortRow("bert_large_mgcrp", "bert_large_mgcrp", _LARGE, num_classes=4),
    _slow_row("bert_plain_12_layers", "bert_base", _DEEP),
    _slow_row("bert_mgcrp_12_layers", options=_DEEP),
    _slow_row("bert_base_full", "bert_base", _FULL),
    _slow_row("bert_base_mgcrp_full", options=_FULL),
)

_REAL_VOCABULARY = {**_SMALL, "vocab_size": 30522, "num_hidden_layers": 2}
_LONG = Recipe(steps=50, total_steps=60, warmup_steps=6, learning_rate=5e-4)
# float32 runs of 50 steps part by chance (a ReLU that flips): 1e-5 to 5e-4 on both sides
_corpus_row = functools.partial(
    PortRow, num_classes=2, batch=Batch(length=24, corpus=True), dtypes=FLOAT64, quick=False
)
_TRAINING = (
    _corpus_row("training_corpus_plain", "bert_base", _REAL_VOCABULARY, recipe=_LONG),
    _corpus_row("training_corpus_mgcrp", options=_REAL_VOCABULARY, recipe=_LONG),
    _corpus_row(
        "training_corpus_mgcrp_mask_padding", options={**_REAL_VOCABULARY, **_MASKED}, recipe=_LONG
    ),
    _corpus_row(
        "training_corpus_mgcrp_accumulated",
        options=_REAL_VOCABULARY,
        recipe=dataclasses.replace(_LONG, accumulate=2),
    ),
)

# float32: with two samples PyTorch's own distance is small by chance now and then, with eight not
_EIGHT = Batch((16, 9, 12, 7, 14, 5, 11, 16), 16)
_checkpoint_row = functools.partial(_slow_row, options=NO_DROPOUT, checkpoint=True)
_CHECKPOINT = (  # their sizes are the file's
    _checkpoint_row("checkpoint_plain", "bert_base", train=False, batch=_EIGHT),
    _checkpoint_row("checkpoint_mgcrp", batch=_EIGHT),
    _checkpoint_row(
        "checkpoint_sentences",
        train=False,
        batch=Batch(length=64, sentences=True),
        forward_only=True,
    ),
)

_UNSEEN_OPTIONS = (
    # a file with one of these options loads into a model without it and computes something else
    *(
        _float64_row(f"bert_act_{name}", "bert_base", {**_TWO_LAYERS, "hidden_act": name})
        for name in ("gelu_new", "gelu_pytorch_tanh", "relu", "silu", "tanh")
    ),
    # a power of two: Paddle's kernel takes its epsilon as float32 (1e-5 shows as 1.4e-10)
    _float64_row("bert_layer_norm_eps", "bert_base", {**_TWO_LAYERS, "layer_norm_eps": 2.0**-16}),
    _float64_row(
        "bert_one_token",
        "bert_base",
        {**_TWO_LAYERS, "pooling": "pooler"},
        batch=Batch(lengths=(1, 1, 1), length=1),
    ),
    _float64_row("bert_pad_id", options={**_BERT, "pad_token_id": 5}),
)

_SPAN = {**_BERT, "pooling": "spans"}
_SPANS = (
    PortRow("bert_spans", "bert_base", {**_SPAN, "num_hidden_layers": 2}, num_classes=2),
    _float64_row(  # its float32 is that of every model of the language models
        "bert_spans_training", "bert_base", _SPAN, num_classes=2, recipe=PUBLISHED_ADAPTERS
    ),
)

_DOCUMENTS = {**encoder(12, 3, 20, 30, 18), "pooling": "layers"}
_BERT_ADAM = Recipe(
    optimizer="bert_adam", schedule="linear_drop", epsilon=1e-6, warmup_steps=2.4, clip_norm=0.05
)
_FIFTY_STEPS = dataclasses.replace(
    _BERT_ADAM, steps=50, total_steps=60, warmup_steps=6.0, learning_rate=2e-4
)
_documents_row = functools.partial(
    PortRow, model="bert_base", options={**_DOCUMENTS, "num_hidden_layers": 1}, num_classes=2
)
_BERT4DOCS = (
    PortRow("bert4doc_model", "bert_base", {**_DOCUMENTS, "layers": (2,)}, num_classes=2),
    _documents_row("bert4doc_training", recipe=_BERT_ADAM, dtypes=FLOAT64),
    _documents_row(
        "bert4doc_training_float32", recipe=_FIFTY_STEPS, dtypes=("float32",), quick=False
    ),
    *(
        PortRow(
            f"layers_{pooling}",
            "bert_base",
            {**_DOCUMENTS, "layers": layers, "layer_pooling": pooling},
            batch=Batch(lengths=(9, 1, 5), length=9),
        )
        for pooling, layers in (("concat", (2, 0)), ("max", ()), ("mean", (0, 2)))
    ),
)


def _long_rows(family: str, model: str, small: dict[str, Any], **plain: Any) -> tuple[PortRow, ...]:
    """Return both heads in training and in evaluation; ``plain``: options of a plain one."""
    mgcrp = f"{model}_mgcrp"
    return (
        _slow_row(f"{family}_plain", model, {**small, **plain}, recipe=Recipe()),
        _slow_row(f"{family}_plain_eval", model, small, train=False),
        _slow_row(f"{family}_mgcrp", mgcrp, small, recipe=Recipe()),
        _slow_row(f"{family}_mgcrp_mask_padding_eval", mgcrp, {**small, **_MASKED}, train=False),
    )


_ROBERTA: dict[str, Any] = {"type_vocab_size": 1, "pad_token_id": 1}
_ROBERTA_TINY = {**_TINY, **_ROBERTA}
_TWO_LAYER_HEAD = {"pooling": "two_layer"}
_ROBERTAS = (
    _float64_row("roberta_mgcrp_tiny", "roberta_base_mgcrp", _ROBERTA_TINY),
    _float64_row("roberta_plain_tiny", "roberta_base", {**_ROBERTA_TINY, **_TWO_LAYER_HEAD}),
    *_long_rows("roberta", "roberta_base", {**_SMALL, **_ROBERTA}, **_TWO_LAYER_HEAD),
    _slow_row(
        "roberta_frozen_encoder",
        "roberta_base_mgcrp",
        {**_ROBERTA_TINY, **_FROZEN},
        recipe=Recipe(),
    ),
    _slow_row("roberta_large", "roberta_large", _ROBERTA_TINY),
    _slow_row("roberta_large_mgcrp", "roberta_large_mgcrp", _ROBERTA_TINY),
    _slow_row("roberta_mgcrp_12_layers", "roberta_base_mgcrp", {**_DEEP, **_ROBERTA}),
)

_SPANBERTS = (
    _float64_row("spanbert_tiny_eval", "spanbert_base", _TINY, train=False, forward_only=True),
    _slow_row("spanbert_plain", "spanbert_base", _SMALL, recipe=Recipe()),
    _slow_row("spanbert_mgcrp", "spanbert_base_mgcrp", _SMALL, recipe=Recipe()),
    _slow_row("spanbert_large", "spanbert_large", _TINY),
    _slow_row("spanbert_large_mgcrp", "spanbert_large_mgcrp", _TINY),
)

_GPT: dict[str, Any] = {"type_vocab_size": 1}
_GPT_TINY = {**_TINY, **_GPT, "intermediate_size": 48}
_GPTS = (
    _float64_row("gpt_mgcrp_tiny", "openai_gpt_mgcrp", _GPT_TINY),
    PortRow(  # a sample of one token, and one that is padding from the first on
        "gpt_plain_few_words",
        "openai_gpt",
        {**_GPT_TINY, "pooling": "score"},
        forward_only=True,
        batch=Batch(lengths=(7, 2, 1, 0), length=8),
        dtypes=FLOAT64,
    ),
    _float64_row(
        "gpt_masked_token",
        "openai_gpt_mgcrp",
        {**_GPT_TINY, **_MASKED},
        forward_only=True,
        batch=Batch(lengths=(8, 5, 4, 6), length=8, hole=2),
    ),
    *_long_rows("gpt", "openai_gpt", {**_SMALL, **_GPT, "intermediate_size": 192}),
    _float64_row("gpt_frozen_encoder", "openai_gpt_mgcrp", {**_GPT_TINY, **_FROZEN}),
    *(
        _float64_row(
            f"gpt_act_{name}", "openai_gpt", {**_GPT_TINY, "hidden_act": name}, quick=False
        )
        for name in ("relu", "silu")
    ),
    _slow_row(
        "gpt_mgcrp_12_layers", "openai_gpt_mgcrp", {**_DEEP, **_GPT, "intermediate_size": 256}
    ),
)

_CONV_TINY = {**_TINY, "embedding_size": 9, "pad_token_id": 28, "initializer_range": 0.2}
_CONV_SIZES = {"num_hidden_layers": 2, "embedding_size": 20, "pad_token_id": 98}
_CONV_SMALL = {**_SMALL, **_CONV_SIZES}
_KERNELS = (
    *("convfixed 2", "convq 2", "convk 2", "convfixed_convq 1", "convfixed_convk 3"),
    *("convq_convk 2", "convfixed_convq_convk 2", "qk_convfixed_convq_convk 2"),
    *("dot_product", "qk_convfixed 2", "qk_convq 2", "qk_convk 12", "qk_convfixed_convq 1"),
    *("qk_convfixed_convk 2", "qk_convq_convk 3", "convolution 2", "convolution_scaled 1"),
    *("convq_convolution_scaled 2", "convfixed_convk_convolution 2", "convbert"),
)
"""The first five raise in the public code."""


def _kernel(name: str) -> dict[str, str]:
    return {"attention_kernel": name}


_DEPTH_MIXED = {
    "qk": "convolution_depth_mixed_no_act 1 1",
    "value_forward": "convolution_depth_mixed 2 1",
}
_PROJECTIONS: dict[str, dict[str, Any]] = {
    "plain": {"qk": "convolution 1 2", "value_forward": "convolution 2 3"},
    "depth": {"qk": "convolution_depth 2 1", "value_forward": "convolution_depth_no_act 1 1"},
    "mixed": {"qk": "convolution_mixed 1 1", "value_forward": "convolution_mixed 2 2"},
    "depth_mixed": _DEPTH_MIXED,
    "value_with_convbert": {"attention_kernel": "convbert", "value_forward": "convolution 1 1"},
    "remove_qk": {"remove_qk": True, "attention_kernel": "qk_convq_convk 2"},
    "no_positions": {"remove_position_embeddings": True, "attention_kernel": "dot_convfixed 2"},
    "wide_heads": {"attention_head_size": 6, "attention_kernel": "qk_convq 2"},
    "same_embedding": {"embedding_size": 12, "attention_kernel": "convk 2"},
    "two_wide_depth": {"attention_head_size": 6, "value_forward": "convolution_depth 1 1"},
}
_CONV_OPTIONS = {
    **{kernel.replace(" ", "_"): _kernel(kernel) for kernel in _KERNELS},
    **{f"with_{name}": options for name, options in _PROJECTIONS.items()},
}
_QUICK = (
    *("qk_convfixed_convq_convk_2", "convolution_2", "convq_convolution_scaled_2", "convbert"),
    *("with_two_wide_depth", "with_depth", "with_depth_mixed", "with_mixed"),
    *("with_no_positions", "with_remove_qk", "with_wide_heads"),
)

# samples are shorter than the table of positions, padded in the middle of the kernels' reach
_CONV_BERTS = (
    *(
        PortRow(
            f"conv_bert_{name}",
            "conv_bert_base",
            {**_CONV_TINY, **options},
            recipe=Recipe(clip_norm=0.1),  # gradients of so small a model are never longer than 1
            quick=False,
        )
        for name, options in _CONV_OPTIONS.items()
    ),
    *(
        _float64_row(
            f"conv_bert_{name}_untrained", "conv_bert_base", {**_CONV_TINY, **_CONV_OPTIONS[name]}
        )
        for name in _QUICK
    ),
    *(
        _slow_row(
            f"conv_bert_{name}",
            model,
            {**_CONV_SMALL, **options},
            train=recipe is not None,
            recipe=recipe,
        )
        for name, model, options, recipe in (
            ("plain", "conv_bert_base", _kernel("qk_convfixed_convq_convk 4"), Recipe()),
            ("plain_eval", "conv_bert_base", _kernel("convbert"), None),
            ("mgcrp", "conv_bert_base_mgcrp", _kernel("convq_convolution_scaled 3"), Recipe()),
            ("mgcrp_projections", "conv_bert_base_mgcrp", {**_DEPTH_MIXED, **_MASKED}, Recipe()),
        )
    ),
    _float64_row(
        "conv_bert_frozen_encoder",
        "conv_bert_base_mgcrp",
        {**_CONV_TINY, **_kernel("convbert"), **_FROZEN},
    ),
)

TEXT_ROWS: tuple[PortRow, ...] = (
    *_BERTS,
    *_TRAINING,
    *_CHECKPOINT,
    *_UNSEEN_OPTIONS,
    *_SPANS,
    *_BERT4DOCS,
    *_ROBERTAS,
    *_SPANBERTS,
    *_GPTS,
    *_CONV_BERTS,
)
