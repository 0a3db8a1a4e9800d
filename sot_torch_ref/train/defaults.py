"""Defaults of the originals' commands and task tables, as data.

Written from the specification and from the released programs that it cites, under their own names;
a None means what the comment beside it says. Nothing here is used to compute.
"""

from collections.abc import Mapping

TEXT_FLAGS: Mapping[str, object] = {
    "config_name": "",
    "tokenizer_name": "",
    "cache_dir": "",
    "max_seq_length": 128,
    "do_train": False,
    "do_eval": False,
    "evaluate_during_training": False,
    "do_lower_case": False,
    "per_gpu_train_batch_size": 8,
    "per_gpu_eval_batch_size": 8,
    "gradient_accumulation_steps": 1,
    "learning_rate": 5e-5,
    "weight_decay": 0.0,
    "adam_epsilon": 1e-8,
    "max_grad_norm": 1.0,
    "num_train_epochs": 3.0,
    "max_steps": -1,
    "warmup_steps": 0,
    "logging_steps": 50,
    "save_steps": 50,
    "eval_all_checkpoints": False,
    "no_cuda": False,
    "overwrite_output_dir": False,
    "overwrite_cache": False,
    "seed": 42,
    "fp16": False,
    "fp16_opt_level": "O1",
}
"""Optional flags of the text release's run_glue.py. Source: specs B.2; cokezrr/transformers."""

TEXT_BEHAVIOUR: Mapping[str, object] = {
    "head": "mgcrp",  # config.MGCrP is true: B.1
    "pooling": None,  # that of the head
    "fusion": None,  # sum: B.1 step 7
    "normalization": None,  # svPN: B.1 step 6
    "q_dim": None,  # by task: B.1
    "k_dim": None,
    "head_dropout": None,
    "head_num_heads": 6,  # A.8
    "wr_dim": 14,  # A.8, SoT-Tiny
    "hidden_dropout_prob": None,  # of the checkpoint's configuration
    "attention_probs_dropout_prob": None,
    "mask_padding": False,  # padding counts: B.1 step 2, decision 3
    "padding": "max_length",  # B.2
    "freeze_encoder": False,  # decision 10
    "optimizer": "hf_adamw",  # B.2
    "lr_scheduler": "linear",  # B.2
    "correct_bias": True,  # B.2; C.4 has none
    "warmup_proportion": 0.0,  # B.2 has steps; C.4 a tenth
    "bf16": False,
    "regression": False,
    "dtype": "float32",
    "early_stopping_patience": None,  # the original has none
}
"""What the text release does without asking, as options of the port. Source: specs B.1 and B.2."""

DOCUMENT_FLAGS: Mapping[str, object] = {
    "max_seq_length": 128,  # D.2
    "trunc_medium": -2,  # D.2
    "layers": (-2,),  # D.3
    "pooling_type": None,  # D.3
    "discr": False,
    "learning_rate": 5e-5,  # D.4
    "per_gpu_train_batch_size": 32,  # D.4
    "num_train_epochs": 3.0,  # D.4
    "warmup_proportion": 0.1,  # D.4
    "weight_decay": 0.01,  # D.4
    "max_grad_norm": 1.0,  # class 3
    "optimizer": "bert_adam",  # D.4, decision 5
    "lr_scheduler": "linear_drop",  # D.4
}
"""BERT4Doc's run_classifier_discriminative.py, its batch under our name. Source: D.2 to D.4."""

MGCRP_DEFAULT: Mapping[str, float] = {"q_dim": 56, "k_dim": 32, "head_dropout": 0.8}
"""MGCrP_q, MGCrP_k, MGCrP_dp of the text release's configuration class. Source: specs B.1."""

MGCRP_BY_TASK: Mapping[str, Mapping[str, float]] = {
    "MNLI": {"q_dim": 112, "k_dim": 48, "head_dropout": 0.7},
    "QNLI": {"q_dim": 112, "k_dim": 48, "head_dropout": 0.5},
    "RTE": {"q_dim": 56, "k_dim": 32, "head_dropout": 0.8},
    "CoLA": {"q_dim": 96, "k_dim": 48, "head_dropout": 0.5},
}
"""Published head settings. Source: specs B.1."""

TEXT_RECIPES: Mapping[str, Mapping[str, object]] = {
    task: {
        "learning_rate": 3e-5 if task == "QNLI" else 2e-5,
        "batch on 4 processes": 64,
        "num_train_epochs": 10,
        "max_seq_length": 128,
        "do_lower_case": True,
        **settings,
    }
    for task, settings in MGCRP_BY_TASK.items()
}
"""Published runs with the second-order head, 16 examples on each of 4 GPUs. Source: specs B.1."""

IMAGE_FLAGS: Mapping[str, object] = {
    "model": "SoT_Tiny",
    "initial_checkpoint": "",
    "resume": "",
    "loss_add": False,
    "num_classes": 1000,
    "img_size": 224,
    "crop_pct": 0.875,  # None in the parser: timm's data configuration
    "mean": (0.485, 0.456, 0.406),  # None in the parser: ImageNet's
    "std": (0.229, 0.224, 0.225),  # None in the parser: ImageNet's
    "interpolation": "bicubic",  # empty in the parser: timm's data configuration
    "batch_size": 64,
    "validation_batch_size_multiplier": 1,
    "opt": "adamw",
    "opt_eps": 1e-8,  # None in the parser: torch's AdamW
    "opt_betas": (0.9, 0.999),  # None in the parser: torch's AdamW
    "weight_decay": 0.05,
    "clip_grad": None,  # no clipping
    "sched": "cosine",
    "lr": 5e-4,
    "warmup_lr": 1e-6,
    "min_lr": 1e-5,
    "epochs": 300,
    "warmup_epochs": 5,
    "cooldown_epochs": 10,
    "no_aug": False,
    "scale": (0.08, 1.0),
    "ratio": (3 / 4, 4 / 3),
    "hflip": 0.5,
    "color_jitter": 0.4,
    "aa": "rand-m9-mstd0.5-inc1",
    "reprob": 0.25,
    "remode": "pixel",
    "recount": 1,
    "mixup": 0.8,
    "cutmix": 1.0,
    "mixup_prob": 1.0,
    "mixup_switch_prob": 0.5,
    "mixup_off_epoch": 0,
    "smoothing": 0.1,
    "train_interpolation": "random",
    "drop": 0.0,
    "drop_path": 0.1,
    "sync_bn": False,
    "model_ema_decay": 0.99996,
    "seed": 42,
    "log_interval": 50,
    "recovery_interval": 0,
    "workers": 8,
    "amp": False,
    "output": "",
    "eval_metric": "top1",
}
"""Flags of the vision release's main.py that mean something for its recipe (the others belong to
other optimizers, schedules and layers of timm). Source: specs A.9; jiangtaoxie/SoT main.py."""

IMAGE_BEHAVIOUR: Mapping[str, object] = {
    "gradient_accumulation_steps": 1,  # main.py has none
    "max_steps": -1,  # all epochs
    "amp_dtype": "float16",  # apex O1
    "dtype": "float32",
}
"""What the vision release does without asking, as options of the port. Source: specs A.9."""

DATA_FLAGS: Mapping[str, tuple[str, ...]] = {
    "training transform": (
        *("img_size", "scale", "ratio", "hflip", "aa", "train_interpolation"),
        *("no_aug", "mean", "std"),
    ),
    "mixing": (
        *("mixup", "cutmix", "mixup_prob", "mixup_switch_prob", "smoothing", "mixup_off_epoch"),
    ),
    "erasing": ("reprob",),
    "evaluation transform": ("img_size", "crop_pct", "interpolation", "mean", "std"),
    "crop": ("scale", "ratio"),
}
"""Which of these flags a part of the image data is built from. Source: specs A.9."""

PUBLISHED_LAYERS: Mapping[str, object] = {
    "Classifier(num_classes)": 1000,
    "OnlyVisualTokensClassifier(num_classes)": 1000,
    "TokenEmbed(img_size)": 224,
    "TokenEmbed(in_chans)": 3,
    "TokenEmbed(embed_dim)": 384,
}
"""Defaults of the layers that the vision release's README builds from dictionaries. Source: specs
A.6, A.7."""

SCRIPTS: Mapping[str, Mapping[str, float]] = {
    "sot_tiny": {"batch_size": 128, "lr": 1e-3, "weight_decay": 0.03, "img_size": 224},
    "sot_small": {"batch_size": 128, "lr": 1e-3, "weight_decay": 0.03, "img_size": 224},
    "sot_base": {"batch_size": 64, "lr": 5e-4, "weight_decay": 0.065, "img_size": 224},
}
"""What the vision release's scripts give to main.py, each on 8 processes. Source: specs A.9."""

GLUE_HEADERS: Mapping[str, str] = {
    "cola": "source label star sentence",  # the files have no header line
    "sst-2": "sentence label",
    "mrpc": "Quality|#1 ID|#2 ID|#1 String|#2 String",
    "sts-b": "index genre filename year old_index source1 source2 sentence1 sentence2 score",
    "qqp": "id qid1 qid2 question1 question2 is_duplicate",
    "mnli": (
        "index promptID pairID genre sentence1_binary_parse sentence2_binary_parse "
        "sentence1_parse sentence2_parse sentence1 sentence2 label1 gold_label"
    ),
    "qnli": "index question sentence label",
    "rte": "index sentence1 sentence2 label",
    "wnli": "index sentence1 sentence2 label",
}
"""Columns of the official training files."""

_BINARY = ("0", "1")
_ENTAILMENT = ("entailment", "not_entailment")
_F1 = ("acc", "f1", "acc_and_f1")
_TITLES = {
    "cola": "CoLA",
    "sst-2": "SST-2",
    "mrpc": "MRPC",
    "sts-b": "STS-B",
    "qqp": "QQP",
    "mnli": "MNLI",
    "qnli": "QNLI",
    "rte": "RTE",
    "wnli": "WNLI",
}
_GLUE_ROWS = (
    # task, text columns, label column, labels, metrics
    ("cola", (3,), 1, _BINARY, ("mcc",)),
    ("sst-2", (0,), 1, _BINARY, ("acc",)),
    ("mrpc", (3, 4), 0, _BINARY, _F1),
    ("sts-b", (7, 8), -1, (), ("pearson", "spearmanr", "corr")),
    ("qqp", (3, 4), 5, _BINARY, _F1),
    ("mnli", (8, 9), -1, ("contradiction", "entailment", "neutral"), ("acc",)),
    ("qnli", (1, 2), -1, _ENTAILMENT, ("acc",)),
    ("rte", (1, 2), -1, _ENTAILMENT, ("acc",)),
    ("wnli", (1, 2), -1, _BINARY, ("acc",)),
)


def _task(
    name: str,
    text: tuple[int, ...],
    label: int,
    labels: tuple[str, ...],
    metrics: tuple[str, ...],
) -> dict[str, object]:
    header = GLUE_HEADERS[name]
    columns = header.split("|") if "|" in header else header.split()
    pair = name == "mnli"
    sets = ("matched", "mismatched") if pair else ()
    return {
        "title": _TITLES[name],
        "text": tuple(columns[index] for index in text),
        "label": columns[label],
        "labels": labels,
        "metrics": metrics,
        "main metric": metrics[-1],
        "outputs": len(labels) or 1,
        "train file": "train.tsv",
        "dev files": tuple(f"dev_{one}.tsv" for one in sets) or ("dev.tsv",),
        "test files": (*(f"test_{one}.tsv" for one in sets), *(("diagnostic.tsv",) if pair else ()))
        or ("test.tsv",),
        "files with labels": ("train", *(tuple(f"dev_{one}" for one in sets) or ("dev",))),
        "predictions": ("MNLI-m.tsv", "MNLI-mm.tsv", "AX.tsv")
        if pair
        else (f"{_TITLES[name]}.tsv",),
        "header": name != "cola",
        "rows cut short are skipped": name == "qqp",
        "scores": (0.0, 5.0) if name == "sts-b" else None,
    }


GLUE_TASKS: Mapping[str, Mapping[str, object]] = {row[0]: _task(*row) for row in _GLUE_ROWS}
"""The nine tasks as the released processors read them: columns by position in the official files,
labels in the order of their indices, no labels for regression. The main metric is the mean where
there are two; MNLI's model also predicts the diagnostic set. Source: specs B.2 (metrics), E.4 (AX);
the GLUE processors of transformers 2.2.1 (columns)."""
