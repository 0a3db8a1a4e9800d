"""Files of BERT4Doc: TensorFlow's names of a norm, both kinds of head, bit-equal there and back."""

from __future__ import annotations

import numpy as np
import pytest

from sot_paddle.checkpoint import write_tensors
from sot_paddle.convert import build_plan, convert_file
from sot_paddle.data.tokenizers import word_piece_tokenizer
from tests.sot_paddle.convert.tiny_checkpoints import CLASSES, HIDDEN, encoder_shapes, linear

POOLER = linear("bert.pooler.dense", HIDDEN, HIDDEN)
PARTS = {"weight": "gamma", "bias": "beta"}


def original(classifier_width: int) -> dict[str, tuple[int, ...]]:
    """Names and shapes as the original saves them."""
    shapes = {}
    for name, shape in encoder_shapes().items():
        stem, _, part = name.rpartition(".")
        shapes[f"{stem}.{PARTS[part]}" if stem.endswith("LayerNorm") else name] = shape
    return {**shapes, **POOLER, **linear("classifier", CLASSES, classifier_width)}


@pytest.mark.parametrize(
    ("layout", "width", "lost"),
    [("bert4doc", HIDDEN, ()), ("bert4doc_layers", 2 * HIDDEN, tuple(POOLER))],
)
def test_there_and_back_bit_for_bit(random_arrays, layout, width, lost) -> None:
    shapes = original(width)
    arrays = random_arrays(shapes)
    plan = build_plan(layout, "bert_base", shapes)
    assert set(plan.ignored) == set(lost)
    ours = plan.apply(arrays)
    norm = "bert.encoder.layers.1.norm2"
    for part, theirs in PARTS.items():
        source = f"bert.encoder.layer.1.output.LayerNorm.{theirs}"
        np.testing.assert_array_equal(ours[f"{norm}.{part}"], arrays[source])
    np.testing.assert_array_equal(ours["head.cls_fc.weight"], arrays["classifier.weight"].T)
    back = build_plan(layout, "bert_base", plan.destination_shapes, reverse=True).apply(ours)
    assert set(back) == set(arrays) - set(lost)
    for name in back:
        np.testing.assert_array_equal(back[name], arrays[name], err_msg=name)


def test_todays_names_of_a_norm_are_read_too(random_arrays) -> None:
    shapes = {**encoder_shapes(), **POOLER, **linear("classifier", CLASSES, HIDDEN)}
    arrays = random_arrays(shapes)
    ours = build_plan("bert4doc", "bert_base", shapes).apply(arrays)
    weight = arrays["bert.embeddings.LayerNorm.weight"]
    np.testing.assert_array_equal(ours["bert.embeddings.layer_norm.weight"], weight)


def test_the_head_of_layers_does_not_pass_for_another(random_arrays) -> None:
    shapes = original(2 * HIDDEN)
    ours = build_plan("bert4doc_layers", "bert_base", shapes).apply(random_arrays(shapes))
    made = {name: tuple(ours[name].shape) for name in ours}
    with pytest.raises(ValueError, match="this layout holds pooler"):
        build_plan("bert4doc", "bert_base", made, reverse=True)
    assert (
        build_plan("bert_hf", "bert_base", made, reverse=True, encoder_only=True).head == "layers"
    )


def test_its_tokenizer_takes_chinese_words_whole_unless_the_files_say_otherwise(
    tmp_path, random_arrays
) -> None:
    source, name = tmp_path / "original", "tokenizer_config.json"
    source.mkdir()
    write_tensors(source / "model.safetensors", random_arrays(original(HIDDEN)))
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "cat"]
    (source / "vocab.txt").write_text("\n".join(words), encoding="utf-8")

    def tokens(folder: str, layout: str) -> list[int]:
        convert_file(source, tmp_path / folder, layout, "bert_base", num_attention_heads=2)
        tokenizer = word_piece_tokenizer(tmp_path / folder, max_length=9)
        return tokenizer.tokenize(["中文 cat"]).row(0).tolist()

    assert tokens("document", "bert4doc") == [2, 1, 5, 3]
    (source / name).write_text('{"tokenize_chinese_chars": true}', encoding="utf-8")
    assert tokens("stated", "bert4doc") == [2, 1, 1, 5, 3]
    assert (tmp_path / "stated" / name).read_bytes() == (source / name).read_bytes()
