"""The rows: cover every model, head and token embedding of the port, with runs that show."""

import pytest

from align.port.port_run import ROWS, select
from align.port.row import DTYPES, PortRow
from sot_paddle.config import WORD_POOLINGS
from sot_paddle.vision_config import TOKEN_TYPES

POOLINGS = {*WORD_POOLINGS} - {"gcp_text"}
FUSIONS = {"sum_fc", "concat", "aggre_all", "sum_loss", "class_token", "word_tokens"}


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_quick_rows_run_every_step_in_both_precisions(dtype):
    quick = [row for row in ROWS if row.quick and dtype in row.dtypes]
    assert any(row.recipe for row in quick)
    assert any(not row.train for row in quick)
    assert any(not row.quick for row in ROWS)


def test_every_head_combination_has_a_row():
    seen = {(row.options.get("pooling"), row.options.get("fusion")) for row in ROWS}
    assert {(p, f) for p in POOLINGS for f in FUSIONS} <= seen
    alone = {row.options["pooling"] for row in ROWS if row.subject == "words"}
    assert {*WORD_POOLINGS} <= alone


def test_every_token_embedding_has_a_row_in_both_modes():
    embeddings = {
        (
            row.options.get("token_type", "densenet"),
            row.options.get("dense_norm", "none"),
            row.train,
        )
        for row in ROWS
        if row.model == "sot_tiny"
    }
    kinds = {("densenet", "bn"), *((kind, "none") for kind in TOKEN_TYPES if kind != "patch")}
    assert {(*kind, train) for kind in kinds for train in (True, False)} <= embeddings


def test_the_training_runs_show_warm_up_and_decay():
    for recipe in [row.recipe for row in ROWS if row.recipe]:
        warmup, total = recipe.warmup_steps, recipe.total_steps
        if recipe.by_epoch:
            warmup, total = (
                recipe.by_epoch[epochs] * recipe.epoch_steps
                for epochs in ("warmup_epochs", "epochs")
            )
            assert recipe.ema_decay
        assert 0 < warmup < recipe.steps < total
        assert recipe.weight_decay > 0


def test_patterns_choose_rows():
    rows = (PortRow("small"), PortRow("small_too"), PortRow("big", quick=False))
    assert [row.name for row in select(rows, ["small*"], False)] == ["small", "small_too"]
    assert [row.name for row in select(rows, [], True)] == ["small", "small_too"]
