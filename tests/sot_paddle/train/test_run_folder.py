import json

import pytest

from sot_paddle.train import checkpointing, run_folder
from tests.sot_paddle.train.run_output import glue_config, opened


def _checkpoint(root, step):
    return checkpointing.write_checkpoint(
        root, step, lambda folder: (folder / checkpointing.STATE).write_text("{}")
    )


def test_a_new_folder_has_nothing_to_continue(tmp_path):
    assert opened(tmp_path / "new", glue_config()) is None
    assert (tmp_path / "new").is_dir()


def test_auto_continues_the_newest(tmp_path):
    run_folder.write_json(tmp_path / run_folder.RUN, {})
    for step in (5, 10):
        _checkpoint(tmp_path, step)
    assert opened(tmp_path, glue_config()) == tmp_path / "checkpoint-10"
    chosen = glue_config(resume=str(tmp_path / "checkpoint-5"))
    assert opened(tmp_path, chosen) == tmp_path / "checkpoint-5"
    with pytest.raises(ValueError, match="drop --resume never"):
        opened(tmp_path, glue_config(resume="never"))


def test_the_checkpoint_to_continue_from_is_not_removed(tmp_path):
    opened(tmp_path, glue_config())
    chosen = _checkpoint(tmp_path, 5)
    config = glue_config(overwrite_output_dir=True, resume=str(chosen))
    with pytest.raises(ValueError, match="checkpoint-5: --overwrite_output_dir would remove it"):
        opened(tmp_path, config)
    assert checkpointing.is_whole(chosen)


def test_whether_a_run_will_continue_is_known_before_anything_is_written(tmp_path):
    root = tmp_path / "run"
    assert not run_folder.will_continue(root, glue_config())
    assert not root.exists()
    run_folder.write_json(_made(root) / run_folder.RUN, {})
    chosen = _checkpoint(root, 5)
    assert run_folder.will_continue(root, glue_config())
    assert run_folder.will_continue(root, glue_config(resume=str(chosen)))
    assert not run_folder.will_continue(root, glue_config(overwrite_output_dir=True))
    with pytest.raises(ValueError, match="not a whole checkpoint"):
        run_folder.will_continue(root, glue_config(resume="nowhere"))


def _made(folder):
    folder.mkdir()
    return folder


def test_json_is_strict(tmp_path):
    path = tmp_path / "a.json"
    run_folder.write_json(path, {"a": [float("nan"), 1.5], "b": (1, float("inf")), "c": None})
    assert json.loads(path.read_text(encoding="utf-8"), parse_constant=pytest.fail) == {
        "a": [None, 1.5],
        "b": [1, None],
        "c": None,
    }
