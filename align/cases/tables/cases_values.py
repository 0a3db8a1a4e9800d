"""What is compared without a model: text data, losses, metrics, functions; no logic."""

from __future__ import annotations

from align.cases.kinds.case_kinds import DTYPES, value_cases

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

_FEEDING = value_cases(
    "fed_values:shares",
    {
        "data_feeding_unequal_shares": {},
        "data_feeding_a_share_of_nothing": {"rows": 13, "batch": 6, "processes": 3, **_LONGEST},
        "data_feeding_resumed": {"epochs": 3, "start": (1, 1), "pad_id": 3},
    },
)

_POSITIONS = value_cases(
    "fed_values:positions", {"data_positions_of_steps": {"batches": 8, "accumulation": 3}}
)
_METRICS = value_cases(
    "score_values:glue",
    {
        f"metric_{task}": {"task": task}
        for task in (
            *("cola", "sst-2", "mrpc", "sts-b", "qqp"),
            *("mnli", "mnli-mm", "qnli", "rte", "wnli"),
        )
    },
    steps=("metric",),
)

_NAN = float("nan")
_CHOICES = value_cases(
    "score_values:best_choice",
    {
        "best_largest": {"values": (0.2, 0.7, 0.7, _NAN, 0.5, 0.9, 0.9)},
        "best_smallest": {"values": (2.0, 1.5, 1.5, _NAN, 1.7, 1.2), "maximise": False},
        "best_after_nan": {"values": (_NAN, 0.3, _NAN, 0.3, 0.1, 0.4)},
    },
    steps=("metric",),
)

_IMAGENET_A = value_cases(
    "score_values:imagenet_a_columns", {"metric_imagenet_a": {}}, steps=("metric",)
)
_CLASS_TABLE = value_cases(
    "score_values:class_table", {"metric_class_table": {}}, steps=("metric",)
)

_LOSSES = (
    *value_cases(
        "loss_values:task",
        {
            "loss_classification": {},
            "loss_regression": {"num_classes": 1},
            "loss_ignore_index": {"ignored": 3},
            "loss_sum_loss": {"pair": True},
            "loss_soft_targets": {"soft": True},
            "loss_soft_targets_sum_loss": {"soft": True, "pair": True},
        },
        steps=("loss",),
        dtypes=DTYPES,
    ),
    *value_cases(
        "loss_values:smoothed",
        {
            "loss_smoothed_labels": {},
            "loss_labels": {"smoothing": 0.0},
            "loss_smoothed_labels_sum_loss": {"smoothing": 0.3, "pair": True},
        },
        steps=("loss",),
        dtypes=DTYPES,
    ),
)

ZERO_MATRICES = value_cases(
    "zero_matrix_values:zero_matrices",
    {
        **{
            f"zero_matrix_{norm}_{rule}": {"norm": norm, "on_zero": rule}
            for norm in ("svpn", "mpn")
            for rule in ("nan", "zero")
        },
        "zero_matrix_epn": {"norm": "epn"},
    },
    steps=("backward",),
    dtypes=_FLOAT64,
)

_UNCENTRED = {
    "name": "cross_covariance",
    "shape": (4, 7, 5),
    "options": {"centering": "none"},
    "inputs": 2,
}
_COVARIANCE = {"name": "cov_forward", "shape": (3, 5, 4, 2)}
_FUNCTIONS = {
    "function_uncentred": {
        **_UNCENTRED,
        "mistaken_for": ("cross_covariance", {"centering": "scalar"}),
    },
    "function_uncentred_masked": {
        **_UNCENTRED,
        "mistaken_for": ("cross_covariance", {"centering": "channel"}),
        "valid": (7, 5, 1, 0),
    },
    "function_svpn_exact": {
        "name": "sv_power_norm_exact",
        "shape": (3, 6, 4),
        "mistaken_for": ("sv_power_norm_exact", {"alpha": 0.5}),
        "options": {"alpha": 0.4},
    },
    "function_svpn_wide": {  # fewer samples than rows, and fewer rows than columns
        "name": "sv_power_norm",
        "shape": (2, 3, 6),
        "mistaken_for": ("sv_power_norm", {"num_iter": 3, "num_sv": 2}),
        "options": {"num_iter": 3, "num_sv": None},
        "start": True,
    },
    "function_sqrt_of_one_step": {
        "name": "matrix_sqrt",
        "shape": (3, 7, 4),
        "mistaken_for": ("matrix_sqrt", {"num_iter": 2}),
        "options": {"num_iter": 1},
        "symmetric": True,
    },
    "function_sqrt_of_four_steps": {  # an even number: a sign that changes in each step shows
        "name": "matrix_sqrt",
        "shape": (3, 7, 4),
        "mistaken_for": ("matrix_sqrt", {"num_iter": 3}),
        "options": {"num_iter": 4},
        "symmetric": True,
    },
    "function_sqrt_exact": {
        "name": "matrix_sqrt_exact",
        "shape": (3, 7, 4),
        "mistaken_for": ("matrix_sqrt", {"num_iter": 3}),
        "symmetric": True,
    },
    "function_cov_forward": {
        **_COVARIANCE,
        "mistaken_for": ("cov_forward", {"scale": "tokens"}),
    },
    "function_cov_forward_tokens": {
        **_COVARIANCE,
        "mistaken_for": ("cov_forward", {"scale": "published"}),
        "options": {"scale": "tokens"},
    },
    "function_triu_forward": {
        "name": "triu_forward",
        "shape": (3, 5, 5),
        "mistaken_for": ("triu_vectorize", {}),
    },
    "function_triu_vectorize": {
        "name": "triu_vectorize",
        "shape": (3, 5, 5),
        "mistaken_for": ("triu_forward", {}),
    },
}
_FUNCTION_CASES = (
    *value_cases(
        "function_values:function", _FUNCTIONS, steps=("forward", "backward"), dtypes=_FLOAT64
    ),
    *value_cases(
        "function_values:function",
        {
            # without a gradient, which is infinite where an eigenvalue is cut at zero
            "function_sqrt_cut": {
                "name": "matrix_sqrt_exact",
                "shape": (3, 7, 4),
                "mistaken_for": ("matrix_sqrt", {"num_iter": 3}),
                "symmetric": True,
                "less": 3.0,
            }
        },
        steps=("forward",),
        dtypes=_FLOAT64,
    ),
)

_BATCH_NORMS = value_cases(
    "batch_norm_values:batch_norm",
    {
        "batch_norm_images": {"shape": (4, 3, 5, 6)},
        "batch_norm_images_plain": {"shape": (4, 3, 5, 6), "native": False},
        "batch_norm_images_eval": {"shape": (4, 3, 5, 6), "train": False},
        "batch_norm_images_eval_plain": {"shape": (4, 3, 5, 6), "train": False, "native": False},
        "batch_norm_no_token": {"shape": (3, 4, 5), "valid": (0, 0, 0)},
        "batch_norm_one_token": {"shape": (3, 4, 5), "valid": (0, 1, 0)},
        "batch_norm_two_tokens": {"shape": (3, 4, 5), "valid": (1, 1, 0)},
    },
    steps=("forward", "backward"),
    dtypes=DTYPES,
)
_SHARED_BATCH_NORMS = value_cases(
    "batch_norm_values:batch_norm",
    {
        "batch_norm_shared_images": {"shape": (6, 3, 5, 4), "processes": 2},
        "batch_norm_shared_tokens": {"shape": (6, 5, 4), "processes": 2},
    },
    steps=("forward",),
    dtypes=DTYPES,
)

_RESAMPLING = value_cases(
    "resized_weights:bicubic",
    {"function_bicubic": {"sizes": ((1, 3), (2, 7), (5, 4), (7, 3), (13, 4), (14, 10), (6, 11))}},
    steps=("forward",),
    dtypes=_FLOAT64,
)

VALUES = (
    *_BATCH_NORMS,
    *_SHARED_BATCH_NORMS,
    *_RESAMPLING,
    *_SENTENCES,
    *_TRUNCATION,
    *_BUCKETED,
    *_CONTINUED,
    *_BYTE_PAIRS,
    *_GLUE,
    *_DIAGNOSTIC,
    *PADDING,
    *_FEEDING,
    *_POSITIONS,
    *_METRICS,
    *_CHOICES,
    *_IMAGENET_A,
    *_CLASS_TABLE,
    *_LOSSES,
    *_FUNCTION_CASES,
    *ZERO_MATRICES,
)
