"""Which rows BERTVision reads, and how it numbers the classes."""

from __future__ import annotations

import pytest

from sot_paddle.data.errors import DataError
from sot_paddle.data.stored.original_rows import original_features, original_task
from sot_paddle.data.tokenizers import WordPieceTokenizer

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh"]


@pytest.fixture
def tokenizer(tmp_path) -> WordPieceTokenizer:
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    return WordPieceTokenizer(tmp_path / "vocab.txt", max_length=8, tie_break="fast")


def test_cola_loses_its_first_row(tmp_path, tokenizer) -> None:
    (tmp_path / "train.tsv").write_text("x\t0\t*\ta b\nx\t1\t\tc d\nx\t0\t\te\n", encoding="utf-8")
    found = original_features(tmp_path, "CoLA", "train", tokenizer)
    assert found.labels.tolist() == [1, 0]
    assert found.indices.tolist() == [0, 1]
    assert tokenizer.tokens(found.row(0)) == ["[CLS]", "c", "d", "[SEP]"]
    everything = original_features(tmp_path, "CoLA", "train", tokenizer, "all")
    assert everything.labels.tolist() == [0, 1, 0]


def test_mrpc_trains_on_the_corpus_and_develops_on_its_test_set(tmp_path, tokenizer) -> None:
    head = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
    for name, rows in (("train", "1\t1\t2\ta\tb\n0\t3\t4\tc\td\n"), ("test", "1\t5\t6\te\tf\n")):
        (tmp_path / f"msr_paraphrase_{name}.txt").write_text(head + rows, encoding="utf-8")
    (tmp_path / "train.tsv").write_text(head + "0\t7\t8\tg\th\n", encoding="utf-8")
    (tmp_path / "dev.tsv").write_text(head + "0\t7\t8\tg\th\n", encoding="utf-8")
    assert original_features(tmp_path, "MRPC", "train", tokenizer).labels.tolist() == [1, 0]
    assert original_features(tmp_path, "MRPC", "dev", tokenizer).labels.tolist() == [1]
    assert original_features(tmp_path, "MRPC", "dev", tokenizer, "all").labels.tolist() == [0]


def test_classes_are_numbered_as_in_the_original_s_files(tmp_path, tokenizer) -> None:
    assert original_task("RTE").labels == ("not_entailment", "entailment")
    rows = "index\tsentence1\tsentence2\tlabel\n0\ta\tb\tentailment\n1\tc\td\tnot_entailment\n"
    (tmp_path / "train.tsv").write_text(rows, encoding="utf-8")
    assert original_features(tmp_path, "RTE", "train", tokenizer).labels.tolist() == [1, 0]


def test_another_choice_of_rows_is_refused() -> None:
    with pytest.raises(DataError, match="rows: expected one of original, all, got 'some'"):
        original_task("RTE", "some")
