"""What is compared without a model: text data, losses, metrics, functions; no logic."""

from __future__ import annotations

from align.cases.kinds.case_kinds import value_cases

_FLOAT64 = ("float64",)

_SENTENCES = value_cases(
    "token_values:sentences",
    {
        "data_single": {"max_length": 64},
        "data_truncated": {"max_length": 9},
        "data_pairs": {"max_length": 24, "pairs": True},
        "data_cased": {"max_length": 64, "lower_case": False, "pad": "longest"},
        "data_accents_kept": {"max_length": 64, "strip_accents": False},
        "data_vocabulary_file": {"max_length": 64, "pairs": True, "source": "file"},
        "data_vocabulary_folder": {
            "max_length": 64,
            "pairs": True,
            "lower_case": False,
            "strip_accents": True,
            "source": "folder",
        },
        "data_stored_without_settings": {"max_length": 64, "source": "bare"},
        "data_stored_settings": {
            "max_length": 24,
            "lower_case": False,
            "strip_accents": True,
            "source": "stored",
        },
    },
)

_BYTE_PAIRS = value_cases(
    "token_values:subwords",
    {
        "data_byte_bpe": {"family": "byte_bpe"},
        "data_byte_bpe_pairs": {"family": "byte_bpe", "pairs": True, "stored": True},
        "data_byte_bpe_lower": {"family": "byte_bpe", "lower_case": True},
        "data_word_bpe": {"family": "word_bpe"},
        "data_word_bpe_pairs": {"family": "word_bpe", "pairs": True, "stored": True},
        "data_sentence_pieces": {"family": "sentencepiece", "lower_case": True},
        "data_sentence_pieces_pairs": {"family": "sentencepiece", "pairs": True},
    },
)

_LONGEST = {"pad": "longest"}
_BUCKETS = {**_LONGEST, "bucket": True}
_GLUE = value_cases(
    "glue.glue_values:glue",
    {
        **{
            f"data_glue_{task}": {"task": task}
            for task in ("cola", "sst-2", "mrpc", "sts-b", "qqp", "mnli", "qnli", "rte", "wnli")
        },
        "data_glue_mnli_mismatched": {"task": "mnli", "split": "dev_mismatched"},
        "data_glue_rte_dynamic": {"task": "rte", **_LONGEST},
        "data_glue_cola_bucketed": {"task": "cola", "split": "dev", **_BUCKETS},
        "data_glue_embedded": {"task": "cola", "split": "dev", "embedded": True},
        "data_glue_qqp_truncated": {"task": "qqp", **_BUCKETS, "max_length": 16},
    },
)

_DIAGNOSTIC = value_cases(
    "glue.diagnostic_values:diagnostic", {"data_diagnostic": {"max_length": 24}}
)

PADDING = value_cases(
    "padded_values:padded",
    {
        "data_padding": {"pad": "max_length", "pad_id": 7, "labels": "float32"},
        "data_padding_longest": {**_LONGEST, "pad_id": 3, "labels": "int64"},
        "data_padding_unlabelled": {**_LONGEST, "pad_id": 0, "labels": None},
    },
)

_TRUNCATION = value_cases("token_values:truncation", {"data_truncation": {}})
_CONTINUED = value_cases("draw_values:continued", {"data_continued_draws": {}})
_BUCKETED = value_cases(
    "bucket_values:batches",
    {"data_buckets": {"pad": "longest"}, "data_whole_order": {"pad": "max_length"}},
)

_RESAMPLING = value_cases(
    "resized_weights:bicubic",
    {"function_bicubic": {"sizes": ((1, 3), (2, 7), (5, 4), (7, 3), (13, 4), (14, 10), (6, 11))}},
    steps=("forward",),
    dtypes=_FLOAT64,
)

VALUES = (
    *_RESAMPLING,
    *_SENTENCES,
    *_TRUNCATION,
    *_BUCKETED,
    *_CONTINUED,
    *_BYTE_PAIRS,
    *_GLUE,
    *_DIAGNOSTIC,
    *PADDING,
)
