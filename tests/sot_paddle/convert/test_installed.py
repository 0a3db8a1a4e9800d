"""The real checkpoint: found, or refused in one sentence that says what to do."""

import sys

import pytest

from sot_paddle.convert.installed import PACKAGE, find_checkpoint


def test_a_missing_package_is_a_user_error_that_says_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, PACKAGE, None)  # importing it now fails
    with pytest.raises(ValueError, match="not installed; run `make setup`"):
        find_checkpoint()


def test_the_installed_one_has_weights_a_vocabulary_and_a_configuration():
    try:
        folder = find_checkpoint()
    except ValueError:
        pytest.skip("the real checkpoint is not installed")
    assert {"model.safetensors", "vocab.txt", "config.json"} <= {p.name for p in folder.iterdir()}
