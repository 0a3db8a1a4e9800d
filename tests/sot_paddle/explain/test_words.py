"""Parts of a score, words and their pieces; the impact of a word is what masking it changes."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

from sot_paddle.data.tokenizers import WordPieceTokenizer
from sot_paddle.explain.parts import PartEvidence, contrast, part_logits, parts_of
from sot_paddle.explain.word_impact import encode, explain_sentence
from sot_paddle.train.model_folder import TextModel, load_trained_text
from tests.sot_paddle.explain import tiny_models as tiny

THREE = ["ClassT", "WordT", "ClassT+WordT"]


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("sot_tiny", {}, THREE),
        ("sot_tiny", {"fusion": "sum_loss"}, THREE),
        ("sot_tiny", {"fusion": "word_tokens"}, ["WordT"]),
        ("sot_tiny", {"fusion": "class_token"}, ["ClassT"]),
        ("sot_tiny", {"fusion": "concat"}, ["ClassT+WordT"]),
        ("sot_tiny", {"pooling": "none"}, ["ClassT"]),
        ("swin_tiny", {"pooling": "mgcrp", "fusion": "aggre_all"}, ["WordT"]),
    ],
)
def test_the_last_part_is_what_the_model_predicts_with(name, options, expected) -> None:
    model = tiny.image_model(name, **options)
    parts = parts_of(model)
    assert [part.name for part in parts] == expected
    images = paddle.to_tensor(np.random.default_rng(0).normal(size=(2, 3, 16, 16)), "float32")
    logits, taps = model(images, return_taps=True)
    found = part_logits(parts, taps)
    np.testing.assert_allclose(found[-1], logits.numpy(), rtol=1e-5, atol=1e-5)
    if len(found) == 3:
        np.testing.assert_array_equal(found[0] + found[1], found[2])


def test_the_margin_does_not_see_a_number_added_to_all_logits() -> None:
    logits = np.array([0.5, -1.0, 3.0, 0.1])
    margins = [values @ contrast(2, 4) for values in (logits, logits + 7.0)]
    assert margins == pytest.approx([3.0 - (0.5 - 1.0 + 0.1) / 3] * 2)
    evidence = PartEvidence(None, logits, 2, np.zeros(1))
    assert evidence.choice == 2
    assert evidence.probability == pytest.approx(np.exp(3.0) / np.exp(logits).sum())
    np.testing.assert_allclose(contrast(1, 3), [-0.5, 1, -0.5])
    np.testing.assert_array_equal(contrast(0, 1), [1])


@pytest.fixture
def tokenizer(tmp_path) -> WordPieceTokenizer:
    (tmp_path / "vocab.txt").write_text("\n".join(tiny.VOCABULARY) + "\n", encoding="utf-8")
    return WordPieceTokenizer(tmp_path / "vocab.txt", do_lower_case=True, max_length=12)


@pytest.fixture
def subject(tmp_path) -> TextModel:
    return load_trained_text(tiny.write_text_model(tmp_path / "run", options=dict(tiny.RUN)))


def test_words_align_with_their_pieces(tokenizer) -> None:
    found = encode(tokenizer, ["The  running\tcat, older \u200b red."])
    assert tokenizer.tokens(found.ids) == [
        *("[CLS]", "the", "run", "##ning", "cat", ",", "old", "##er", "red", ".", "[SEP]")
    ]
    assert [(w.text, w.start, w.stop) for w in found.words] == [
        *(("The", 1, 2), ("running", 2, 4), ("cat,", 4, 6), ("older", 6, 8)),
        *(("\u200b", 8, 8), ("red.", 8, 10)),
    ]
    assert found.left_out == 0


def test_pairs_and_what_does_not_fit(tokenizer) -> None:
    pair = encode(tokenizer, ["the red cat runs", "a dog running ."])
    assert len(pair.ids) == 12
    assert [(w.text, w.sentence, w.start, w.stop) for w in pair.words] == [
        *(("the", 0, 1, 2), ("red", 0, 2, 3), ("cat", 0, 3, 4), ("runs", 0, 4, 5)),
        *(("a", 1, 6, 7), ("dog", 1, 7, 8), ("running", 1, 8, 10), (".", 1, 10, 11)),
    ]
    assert (pair.boundary, pair.left_out) == (6, 0)
    long = encode(tokenizer, ["the red cat runs a dog the cat old running red"])
    assert [(w.text, w.stop - w.start) for w in long.words][-2:] == [("old", 1), ("running", 1)]
    assert long.left_out == 1
    cut = encode(tokenizer, ["the red cat runs old old", "a dog running ."])
    assert [w.text for w in cut.words if not w.sentence] == ["the", "red", "cat", "runs", "old"]
    assert cut.left_out == 2
    assert (cut.words[-1].text, cut.words[-1].stop) == ("running", 11)


def test_texts_that_cannot_be_used(tokenizer) -> None:
    for texts, said in ((["", "a"], "sentence 1 of .* has no words"), (["a"] * 3, "got 3 texts")):
        with pytest.raises(ValueError, match=said):
            encode(tokenizer, texts)


def test_a_text_that_is_not_cut_at_its_end_is_refused_with_the_reason(tokenizer) -> None:
    ends = tokenizer.truncating(3)
    assert len(encode(ends, ["the red cat runs"]).words) == 4
    with pytest.raises(ValueError, match=r"at most 10 tokens, got 1\d: .*\(trunc_medium 3\)"):
        encode(ends, ["the red cat runs a dog the cat old running red"])


def test_impacts_are_the_margins_lost(subject) -> None:
    found = explain_sentence(subject, ["the running cat ."])
    cls, word, both = found.parts
    np.testing.assert_allclose(cls.evidence + word.evidence, both.evidence, atol=1e-9)

    def logits(text: str) -> np.ndarray:
        row = subject.tokenizer.encode_batch([text], pad="max_length")
        assert row["input_ids"].shape == (1, 20)  # padded as in training
        return subject.model(**{k: paddle.to_tensor(v) for k, v in row.items()}).numpy()[0]

    full = logits("the running cat .")
    np.testing.assert_allclose(both.logits, full, rtol=1e-4, atol=1e-5)
    target = int(full.argmax())
    assert {part.target for part in found.parts} == {target}
    masked = ["[MASK] running cat .", "the [MASK] [MASK] cat .", "the running [MASK] ."]
    weights = contrast(target, 2)
    expected = [(full - logits(text)) @ weights for text in masked]
    np.testing.assert_allclose(both.evidence[:3], expected, rtol=1e-3, atol=1e-4)
    assert np.abs(expected).max() > 1e-2
    (_, _, other) = explain_sentence(subject, ["the running cat ."], 1 - target).parts
    np.testing.assert_allclose(other.evidence, -both.evidence, atol=1e-9)


def test_regression_and_a_plain_head(tmp_path) -> None:
    options = dict(tiny.RUN)
    folder = tiny.write_text_model(tmp_path / "a", task="STS-B", labels=(), options=options)
    score = load_trained_text(folder)
    found = explain_sentence(score, ["the cat", "a dog"])
    assert (score.labels, score.num_texts) == ((), 2)
    assert found.parts[-1].target == 0
    plain = tiny.write_text_model(tmp_path / "b", options=options, pooling="pooler")
    assert [p.part.name for p in explain_sentence(load_trained_text(plain), ["a"]).parts] == [
        "ClassT"
    ]
