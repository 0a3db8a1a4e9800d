"""A GLUE folder, a vocabulary and a BERT small enough to train in a second; no tests here."""

from __future__ import annotations

import json
from pathlib import Path

WORDS = ["the", "a", "cat", "dog", "bird", "tree", "sees", "eats", "likes", "under", "red", "old"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
SIZES = {
    "model_type": "bert",
    "vocab_size": len(SPECIAL) + len(WORDS),
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "max_position_embeddings": 24,
}


STEPS = ("--max_steps", "2", "--save_steps", "1", "--logging_steps", "1")
"""Flags after :func:`command`'s for two steps, with a checkpoint of each."""


def sentence(index: int) -> str:
    """A short sentence, different for each small index."""
    return " ".join(WORDS[(index * step + step) % len(WORDS)] for step in range(1, 4 + index % 5))


def write_glue(folder: Path, *, train: int = 22, dev: int = 7, test: int = 5) -> Path:
    """Write an RTE folder with so many rows."""
    data = folder / "RTE"
    data.mkdir(parents=True)
    header = "index\tsentence1\tsentence2"
    labels = ("entailment", "not_entailment")
    for name, count in (("train", train), ("dev", dev), ("test", test)):
        rows = [header + ("\tlabel" if name != "test" else "")]
        for index in range(count):
            row = f"{index}\t{sentence(index)}\t{sentence(3 * index + 1)}"
            label = labels[(index * index + index // 3) % 2]
            rows.append(row + (f"\t{label}" if name != "test" else ""))
        (data / f"{name}.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return data


def write_model(folder: Path, **sizes: object) -> Path:
    """Write config.json and vocab.txt of a tiny BERT; its weights stay random."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(SIZES | sizes), encoding="utf-8")
    (folder / "vocab.txt").write_text("\n".join(SPECIAL + WORDS) + "\n", encoding="utf-8")
    return folder


def command(data: Path, model: Path, out: Path, *more: str) -> list[str]:
    """Flags of a tiny run with the second-order head."""
    return [
        *("--task_name", "RTE", "--data_dir", str(data), "--output_dir", str(out)),
        *("--model_name_or_path", "bert_base_mgcrp", "--config_name", str(model)),
        *("--tokenizer_name", str(model), "--cache_dir", str(out.parent / "cache")),
        *("--max_seq_length", "20", "--per_gpu_train_batch_size", "4", "--do_train", "--do_eval"),
        "--do_predict",
        *("--q_dim", "5", "--k_dim", "3", "--learning_rate", "1e-2", "--no_cuda", *more),
    ]
