"""Spec and settings that a dump tells about itself."""

from __future__ import annotations

import hashlib
from types import SimpleNamespace

from align.match.name_table import Table, read_table
from align.stages.dumping import module_of, rows_of_table, spec_identity


def test_a_spec_is_told_by_its_hash_and_a_table_by_its_rows(tmp_path) -> None:
    spec = tmp_path / "pair.py"
    spec.write_text("NAME = 'x'\n")
    expected = hashlib.sha256(spec.read_bytes()).hexdigest()
    assert spec_identity(spec) == {"file": "pair.py", "sha256": expected}
    assert spec_identity(None) == {}
    assert rows_of_table(Table()) is None
    told = rows_of_table(read_table({"a": "b", "c": None}))
    assert told["map"] == {"a": "b", "c": None}


def test_plain_settings_of_a_module_are_kept() -> None:
    class Norm(SimpleNamespace):
        def forward(self) -> None:
            """Nothing."""

    found = module_of("norm", Norm(eps=1e-5, affine=True, weight=[1], text="x" * 200))
    assert (found.name, found.kind) == ("norm", "Norm")
    assert found.settings == {"eps": 1e-5, "affine": True}
    assert "test_identity.py" in found.source
