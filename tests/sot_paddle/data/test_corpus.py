"""The embedded corpus: published numbers were measured on these very sentences."""

from __future__ import annotations

import hashlib

from sot_paddle.data.corpus import FOLDER
from sot_paddle.data.glue import read_split

FILES = {
    "train": (3000, "ddaefc484280"),
    "dev": (500, "5a636bde7509"),
    "test": (500, "c977c23211a6"),
}


def test_the_files_do_not_change_unnoticed():
    texts = set()
    for split, (size, digest) in FILES.items():
        content = (FOLDER / f"{split}.tsv").read_bytes()
        assert hashlib.sha256(content).hexdigest().startswith(digest)
        rows = read_split(FOLDER, "cola", split)
        texts |= {row.text_a for row in rows}
        assert len(rows) == size
        if split != "test":
            assert 0.6 <= sum(row.label for row in rows) / size <= 0.7
    assert len(texts) == 4000
