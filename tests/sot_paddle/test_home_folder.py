"""Commands run where the home folder cannot be written or is not known, and leave nothing there."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from sot_paddle import home_folder

ROOT = Path(__file__).resolve().parents[2]
OF_LIBRARIES = """
import sys
import sot_paddle
sys.modules["paddle"] = None  # takes seconds, and makes no folder
import importlib.util, runpy
from sot_paddle.home_folder import home_for_imports
folder = importlib.util.find_spec("paddlenlp").submodule_search_locations[0]
print(runpy.run_path(f"{folder}/utils/env.py")["MODEL_HOME"])
with home_for_imports():
    import visualdl
"""


@pytest.fixture
def temporary(tmp_path, monkeypatch) -> Path:
    """A folder for temporary files, and none of the variables that say where things go."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    for name in ("PPNLP_HOME", "MPLCONFIGDIR", "XDG_CACHE_HOME", "SOT_PADDLE_CACHE"):
        monkeypatch.delenv(name, raising=False)
    home_folder.stand_in.cache_clear()
    yield folder
    home_folder.stand_in.cache_clear()


def test_libraries_that_write_into_the_home_folder_are_imported_without_one(
    tmp_path, temporary
) -> None:
    (tmp_path / "file").write_text("no folder")
    environment = {**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", OF_LIBRARIES],
        cwd=temporary,
        env={**environment, "HOME": str(tmp_path / "file" / "home")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (made,) = temporary.iterdir()
    assert Path(done.stdout.strip()).is_relative_to(made)


def test_a_user_without_a_name_gets_no_folder_in_the_working_directory(
    monkeypatch, temporary
) -> None:
    def unknown(uid: int):
        raise KeyError(uid)

    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    home_folder.spare_home()
    places = [Path(os.environ["PPNLP_HOME"]), home_folder.default_cache_dir()]
    assert all(place.is_relative_to(temporary) for place in places)


def test_a_stand_in_that_others_prepared_is_not_used(temporary) -> None:
    folder = home_folder.stand_in()
    assert folder.stat().st_mode & 0o777 == 0o700
    home_folder.stand_in.cache_clear()
    assert home_folder.stand_in() == folder  # of every process of this user
    folder.chmod(0o777)
    home_folder.stand_in.cache_clear()
    assert home_folder.stand_in() != folder
    assert home_folder.is_trusted(home_folder.stand_in())
