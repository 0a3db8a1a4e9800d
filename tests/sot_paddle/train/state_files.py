"""A tiny encoder with weights on the disk, and a tiny SQuAD file; no tests here."""

from __future__ import annotations

import json
from pathlib import Path

import paddle

from sot_paddle.registry import create_model
from sot_paddle.weights import save_weights
from tests.sot_paddle.train import tiny_run


def write_encoder(folder: Path, *, seed: int = 5) -> Path:
    """Write a tiny language model as tools/train_glue.py does: weights, config.json, vocab.txt."""
    tiny_run.write_model(folder, max_position_embeddings=40)
    sizes = {k: v for k, v in tiny_run.SIZES.items() if k != "model_type"}
    paddle.seed(seed)
    model = create_model("bert_base", 2, **{**sizes, "max_position_embeddings": 40})
    save_weights(model, folder / "model.safetensors")
    return folder


def write_squad(path: Path, *, questions: int = 6) -> Path:
    """Write questions about contexts of up to 30 words; every third has no answer."""
    paragraphs = []
    for index in range(questions):
        words = [tiny_run.WORDS[(index + 5 * at) % len(tiny_run.WORDS)] for at in range(30)]
        context = " ".join(words)
        answers = []
        if index % 3:
            answers = [{"text": " ".join(words[6:8]), "answer_start": len(" ".join(words[:6])) + 1}]
        asked = {
            "id": f"q{index}",
            "question": tiny_run.sentence(index),
            "answers": answers,
            "is_impossible": not answers,
        }
        paragraphs.append({"context": context, "qas": [asked]})
    path.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}), encoding="utf-8")
    return path
