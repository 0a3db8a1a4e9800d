"""What a report says of its pair: models, commits, date, command, seed."""

from __future__ import annotations

import datetime
import shutil
import subprocess
from types import SimpleNamespace

import pytest

from align.record import run_report
from align.record.run_report import commit, described, origin, rows


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_the_commit_of_a_repository_and_its_changes(tmp_path) -> None:
    def git(*arguments: str) -> str:
        who = ("-c", "user.name=x", "-c", "user.email=x@example.org")
        run = subprocess.run(
            ["git", *who, *arguments], cwd=tmp_path, capture_output=True, text=True
        )
        assert run.returncode == 0, run.stderr
        return run.stdout.strip()

    assert commit(tmp_path) == ""
    git("init", "-q")
    (tmp_path / "a").write_text("1")
    git("add", "a")
    git("commit", "-q", "-m", "first")
    head = git("rev-parse", "HEAD")
    assert commit(tmp_path) == head
    (tmp_path / "a").write_text("2")
    assert commit(tmp_path) == f"{head} with uncommitted changes"


def test_the_commit_of_the_working_folder_stands_beside_the_suites(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    commits = {tmp_path: "their commit"}
    monkeypatch.setattr(run_report, "_commit_once", lambda at: commits.get(at, "suite's"))
    found = origin()
    assert found["commit"] == {"suite": "0.1.0 suite's", "yours": "their commit"}
    assert found["command"].startswith("python ")
    assert datetime.datetime.fromisoformat(found["date"]).utcoffset() is not None
    commits[tmp_path] = "suite's"  # one repository
    assert list(origin()["commit"]) == ["suite"]


def test_a_package_installed_in_a_repository_is_no_part_of_it(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(run_report, "commit", lambda at: "somebody's")
    assert run_report._commit_once(tmp_path / "site-packages" / "align") == ""
    assert run_report._commit_once(tmp_path / "project") == "somebody's"


def test_tied_parameters_count_once_and_buffers_not_at_all() -> None:
    def entry(identity, *shape, buffer=False):
        return SimpleNamespace(identity=identity, shape=shape, buffer=buffer)

    entries = [entry(1, 2, 3), entry(1, 2, 3), entry(2, 5), entry(3, 7, buffer=True), entry(4)]
    found = described("Net", "net.py:3", entries)
    assert found == {"class": "Net", "code": "net.py:3", "parameters": 12}
    assert rows(
        {"pair": "p", "torch": found, "seed": 0, "commit": {"suite": "", "yours": "c"}}
    ) == [
        ("pair", "p"),
        ("PyTorch", "Net, 12 parameters, net.py:3"),
        ("seed", "0"),
        ("commit (yours)", "c"),
    ]
