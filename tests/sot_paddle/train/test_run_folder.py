import json

import pytest

from sot_paddle.tasks.glue_options import TrainConfig
from sot_paddle.train import checkpointing, run_folder


def _config(**more):
    fields = {"task_name": "RTE", "data_dir": "d", "model_name_or_path": "m", "output_dir": "o"}
    return TrainConfig(**(fields | {"do_train": True} | more))


def _opened(root, config):
    """The checkpoint that a run begins at."""
    with run_folder.open_run(root, config, {}, {}) as checkpoint:
        return checkpoint


def _checkpoint(root, step):
    return checkpointing.write_checkpoint(
        root, step, lambda folder: (folder / checkpointing.STATE).write_text("{}")
    )


def test_a_new_folder_has_nothing_to_continue(tmp_path):
    assert _opened(tmp_path / "new", _config()) is None
    assert (tmp_path / "new").is_dir()


def test_auto_continues_the_newest(tmp_path):
    run_folder.write_json(tmp_path / run_folder.RUN, {})
    for step in (5, 10):
        _checkpoint(tmp_path, step)
    assert _opened(tmp_path, _config()) == tmp_path / "checkpoint-10"
    chosen = _config(resume=str(tmp_path / "checkpoint-5"))
    assert _opened(tmp_path, chosen) == tmp_path / "checkpoint-5"
    with pytest.raises(ValueError, match="drop --resume never"):
        _opened(tmp_path, _config(resume="never"))


def test_the_checkpoint_to_continue_from_is_not_removed(tmp_path):
    _opened(tmp_path, _config())
    chosen = _checkpoint(tmp_path, 5)
    config = _config(overwrite_output_dir=True, resume=str(chosen))
    with pytest.raises(ValueError, match="checkpoint-5: --overwrite_output_dir would remove it"):
        _opened(tmp_path, config)
    assert checkpointing.is_whole(chosen)


def test_whether_a_run_will_continue_is_known_before_anything_is_written(tmp_path):
    root = tmp_path / "run"
    assert not run_folder.will_continue(root, _config())
    assert not root.exists()
    run_folder.write_json(_made(root) / run_folder.RUN, {})
    chosen = _checkpoint(root, 5)
    assert run_folder.will_continue(root, _config())
    assert run_folder.will_continue(root, _config(resume=str(chosen)))
    assert not run_folder.will_continue(root, _config(overwrite_output_dir=True))
    with pytest.raises(ValueError, match="not a whole checkpoint"):
        run_folder.will_continue(root, _config(resume="nowhere"))


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
