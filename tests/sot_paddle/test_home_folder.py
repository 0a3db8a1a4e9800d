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


@pytest.fixture
def unusable(tmp_path, monkeypatch) -> Path:
    """A home folder that nobody can make, the administrator neither."""
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("HOME", str(tmp_path / "file" / "home"))
    return tmp_path / "file" / "home"


def started(words: list[str], temporary: Path) -> subprocess.CompletedProcess:
    environment = {**os.environ, "TMPDIR": str(temporary), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-W", "ignore", *words],
        cwd=temporary,
        env={**environment, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_libraries_that_write_into_the_home_folder_are_imported_without_one(
    unusable, temporary
) -> None:
    done = started(["-c", OF_LIBRARIES], temporary)
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


def test_the_stand_in_is_one_for_all_processes_of_a_user_and_for_them_alone(temporary) -> None:
    folder = home_folder.stand_in()
    assert folder.stat().st_mode & 0o777 == 0o700
    home_folder.stand_in.cache_clear()
    assert home_folder.stand_in() == folder


@pytest.mark.parametrize("kind", ["open", "link", "file"])
def test_a_stand_in_that_others_prepared_is_not_used(kind: str, temporary, tmp_path) -> None:
    place = temporary / f"sot_paddle-{os.geteuid()}"
    if kind == "open":
        place.mkdir()
        place.chmod(0o777)
    elif kind == "link":
        (tmp_path / "theirs").mkdir()
        place.symlink_to(tmp_path / "theirs")
    else:
        place.write_text("theirs")
    folder = home_folder.stand_in()
    assert folder != place
    assert folder.parent == temporary
    assert home_folder.is_trusted(folder)


def test_a_home_folder_that_can_be_written_stays_in_place(monkeypatch, temporary, tmp_path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    home_folder.spare_home()
    with home_folder.home_for_imports():
        assert os.environ["HOME"] == str(tmp_path / "home")
    assert "PPNLP_HOME" not in os.environ
    assert not any(temporary.iterdir())


def test_what_the_user_sets_stays_and_the_home_comes_back(unusable, temporary, monkeypatch) -> None:
    monkeypatch.setenv("PPNLP_HOME", "mine")
    home_folder.spare_home()
    with home_folder.home_for_imports():
        assert os.environ["HOME"] == str(home_folder.stand_in())
    assert os.environ["PPNLP_HOME"] == "mine"
    assert os.environ["HOME"] == str(unusable)


def test_where_the_cache_is_by_default(monkeypatch, tmp_path, temporary) -> None:
    monkeypatch.setenv("SOT_PADDLE_CACHE", str(tmp_path / "own"))
    assert home_folder.default_cache_dir() == tmp_path / "own"
    monkeypatch.delenv("SOT_PADDLE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert home_folder.default_cache_dir() == tmp_path / "sot_paddle"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert home_folder.default_cache_dir() == tmp_path / "home" / ".cache" / "sot_paddle"
    (tmp_path / "home").write_text("no folder")
    assert home_folder.default_cache_dir() == home_folder.stand_in() / "cache"
