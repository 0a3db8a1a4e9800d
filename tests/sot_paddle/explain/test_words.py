"""Parts of a score, words and their pieces; the impact of a word is what masking it changes."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

from sot_paddle.data.subword import SubwordTokenizer
from sot_paddle.data.tokenizers import word_piece_tokenizer
from sot_paddle.explain.parts import PartEvidence, contrast, part_logits, parts_of
from sot_paddle.explain.word_impact import explain_sentence, words_of
from sot_paddle.train.model_folder import TextModel, load_trained_text
from tests.sot_paddle.conftest import tokens_of
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
    evidence = PartEvidence(None, logits, np.zeros(1))
    assert evidence.choice == 2
    assert evidence.probability == pytest.approx(np.exp(3.0) / np.exp(logits).sum())
    np.testing.assert_allclose(contrast(1, 3), [-0.5, 1, -0.5])
    np.testing.assert_array_equal(contrast(0, 1), [1])


@pytest.fixture
def tokenizer(tmp_path) -> SubwordTokenizer:
    (tmp_path / "vocab.txt").write_text("\n".join(tiny.VOCABULARY) + "\n", encoding="utf-8")
    return word_piece_tokenizer(tmp_path / "vocab.txt", do_lower_case=True, max_length=12)


@pytest.fixture
def subject(tmp_path) -> TextModel:
    return load_trained_text(tiny.write_text_model(tmp_path / "run", options=dict(tiny.RUN)))


def test_words_align_with_their_pieces(tokenizer) -> None:
    text = "The  running\tcat, older \u200b red. "
    assert tokens_of(tokenizer, tokenizer.tokenize([text]).row(0)) == [
        *("[CLS]", "the", "run", "##ning", "cat", ",", "old", "##er", "red", ".", "[SEP]")
    ]
    assert [(word.text, word.places) for word in words_of(tokenizer, [text])] == [
        *(("The", (1,)), ("running", (2, 3)), ("cat,", (4, 5)), ("older", (6, 7))),
        *(("\u200b", ()), ("red.", (8, 9))),
    ]


def test_pairs_and_what_does_not_fit(tokenizer) -> None:
    pair = words_of(tokenizer, ["the red cat runs", "a dog running ."])
    assert [(word.text, word.sentence, word.places) for word in pair] == [
        *(("the", 0, (1,)), ("red", 0, (2,)), ("cat", 0, (3,)), ("runs", 0, (4,))),
        *(("a", 1, (6,)), ("dog", 1, (7,)), ("running", 1, (8, 9)), (".", 1, (10,))),
    ]
    text = "the red cat runs a dog the cat old running red"
    assert [word.text for word in words_of(tokenizer, [text])] == text.split()[:-1]
    assert words_of(tokenizer, [text])[-1].places == (10,)
    cut = words_of(tokenizer, ["the red cat runs old old", "a dog running ."])
    assert [word.text for word in cut if not word.sentence] == ["the", "red", "cat", "runs", "old"]
    assert (cut[-1].text, cut[-1].places) == ("running", (9, 10))
    ends = words_of(tokenizer.truncating(3), [text])  # not cut at its end
    assert [word.text for word in ends] == ["the", "red", "cat", "dog", *text.split()[6:]]
    assert ends[-1].places == (10,)


def test_texts_that_cannot_be_used(subject) -> None:
    for texts, message in (([" "], "sentence 1 of .* has no words"), (["a"] * 2, "got 2: ")):
        with pytest.raises(ValueError, match=message):
            explain_sentence(subject, texts)


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
    masked = ["[MASK] running cat .", "the [MASK] [MASK] cat .", "the running [MASK] ."]
    weights = contrast(target, 2)
    expected = [(full - logits(text)) @ weights for text in masked]
    np.testing.assert_allclose(both.evidence[:3], expected, rtol=1e-3, atol=1e-4)
    assert np.abs(expected).max() > 1e-2


def test_regression_and_a_plain_head(tmp_path) -> None:
    options = dict(tiny.RUN)
    folder = tiny.write_text_model(tmp_path / "a", task="STS-B", labels=(), options=options)
    score = load_trained_text(folder)
    found = explain_sentence(score, ["the cat", "a dog"])
    assert (score.labels, score.num_texts) == ((), 2)
    assert found.parts[-1].logits.shape == (1,)
    plain = tiny.write_text_model(tmp_path / "b", options=options, pooling="pooler")
    assert [p.part.name for p in explain_sentence(load_trained_text(plain), ["a"]).parts] == [
        "ClassT"
    ]
