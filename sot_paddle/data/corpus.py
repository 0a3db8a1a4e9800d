"""The embedded default data: a small acceptability corpus, laid out as CoLA's folder.

A grammar made 4,000 different sentences and minimal violations of 29 phenomena (the column
``source``): word order, agreement with attractors, argument structure, determiners, reflexives,
auxiliaries, questions and islands. A sentence and its violation are in the same split, and about
two thirds are acceptable. ``train.tsv`` and ``dev.tsv`` have no header, ``test.tsv`` no labels.
"""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).with_name("acceptability")
"""For ``read_split(FOLDER, "cola", split)``, and as ``--data_dir`` of a run."""
