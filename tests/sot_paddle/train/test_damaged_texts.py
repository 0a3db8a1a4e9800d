"""What is wrong with a text or a shard is one clear line of the command, with status 2.

A byte that is no UTF-8, nothing but empty documents, a file that is missing, a shard that is
missing, cut off or changed: for the tokenizer, each form of preparation and pre-training.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from sot_paddle.cli import exit_status
from sot_paddle.train import preparation_command
from tests.sot_paddle.train.run_output import in_process
from tests.sot_paddle.train.tiny_pretraining import write_texts


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """See `write_texts`."""
    return write_texts(tmp_path_factory.mktemp("data"))


@pytest.fixture
def refused(capfd) -> Callable[[Callable[[], object]], str]:
    """The one line on stderr of something that ends with status 2."""

    def run(action: Callable[[], object]) -> str:
        capfd.readouterr()
        assert action() == 2
        out, said = capfd.readouterr()
        assert out == ""
        names = ("x: ", "pretrain: ", "train_text: ")
        lines = [line for line in said.splitlines() if line.startswith(names)]
        assert len(lines) == 1, said
        return lines[0]

    return run


def tokenizer(data: Path, text: Path, out: Path) -> int:
    given = ["--input", str(text), "--vocab_size", "20", "--output_dir", str(out)]
    return exit_status("x", lambda: preparation_command.train_tokenizer(given))


def preparation(form: str) -> Callable[[Path, Path, Path], int]:
    def prepare(data: Path, text: Path, out: Path) -> int:
        given = ["--form", form, "--input", str(text), "--output_dir", str(out)]
        more = ["--vocab_size", "45"] if form == "ids" else []
        more = more or ["--tokenizer_name", str(data / "words"), "--max_seq_length", "20"]
        return exit_status("x", lambda: preparation_command.prepare([*given, *more]))

    return prepare


COMMANDS = {"tokenizer": tokenizer}
COMMANDS |= {form: preparation(form) for form in preparation_command.FORMS}
GOOD = {"ids": b"2 5 3 6 3\n"}


@pytest.mark.parametrize("name", COMMANDS)
def test_text_that_cannot_be_used_is_one_line(name, data, tmp_path, refused) -> None:
    command, text = COMMANDS[name], tmp_path / "text.txt"
    good = GOOD.get(name, b"word1 word2\n" * 40)
    for content, said in (
        (good + b"\xff\n", "decode byte 0xff"),
        (b"\n\n \n\n", "no "),
        (None, "is missing: give text files"),
    ):
        text.unlink(missing_ok=True)
        if content is not None:
            text.write_bytes(content)
        line = refused(lambda: command(data, text, tmp_path / "out"))
        assert str(text) in line
        assert said in line


@pytest.mark.parametrize(
    ("form", "shard", "damage"),
    [
        ("instances", "numbers.bin", lambda content: content[:-3]),
        ("pairs", "numbers.bin", lambda content: bytes([content[0] ^ 1]) + content[1:]),
        ("pairs", "numbers.bin", None),
        ("instances", "manifest.json", None),
    ],
    ids=["cut off", "changed", "missing", "no manifest"],
)
def test_a_damaged_shard_is_one_line(form, shard, damage, data, tmp_path, refused) -> None:
    folder = Path(shutil.copytree(data / form, tmp_path / "data"))
    content = (folder / shard).read_bytes()
    (folder / shard).unlink()
    if damage is not None:
        (folder / shard).write_bytes(damage(content))
    given = ["--data_dir", folder, "--model_name_or_path", "bert_base", "--do_train"]
    given += ["--config_name", data / "config.json", "--tokenizer_name", data / "words"]
    given += ["--block_size", "16", "--output_dir", tmp_path / "out"]
    line = refused(lambda: in_process("pretrain")([str(word) for word in given]))
    assert str(folder) in line
    assert not (tmp_path / "out").exists()
