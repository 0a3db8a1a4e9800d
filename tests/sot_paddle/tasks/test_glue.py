"""What a GLUE task predicts; its scores: cases evaluation_*."""

from __future__ import annotations

from sot_paddle.data import glue_tasks
from sot_paddle.tasks import glue


def test_a_model_of_mnli_predicts_the_diagnostic_set_where_it_is(tmp_path):
    folder, table = tmp_path / "MNLI", glue_tasks.get_task("MNLI")
    folder.mkdir()
    assert glue.test_splits(folder, table) == ["test_matched"]  # reading it says what is missing
    (folder / "test_matched.tsv").touch()
    (folder / "diagnostic.tsv").touch()
    found = glue.test_splits(folder, table)
    files = [glue.GlueTask(table, 1).prediction_files(split) for split in found]
    assert files == [("MNLI-m.tsv",), ("AX.tsv",)]
