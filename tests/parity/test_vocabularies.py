"""Small vocabularies: the same sentences give the same files every time."""

import pytest

from sot_paddle.data.corpus import REAL_SENTENCES
from tests.parity.vocabularies import train_vocabulary


@pytest.mark.parametrize("family", ["byte_bpe", "word_bpe", "sentencepiece"])
def test_a_vocabulary_is_the_same_when_it_is_trained_again(tmp_path, family):
    files = []
    for name in ("first", "second"):
        folder = tmp_path / name
        folder.mkdir()
        train_vocabulary(folder, family, REAL_SENTENCES)
        files.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert files[0]
    assert files[0] == files[1]
