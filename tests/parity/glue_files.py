"""Small GLUE folders in the official layouts, made from any sentences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

Row = Callable[[int, str, str], list[str]]

_ENTAILMENT = ("entailment", "not_entailment")
_NLI = ("neutral", "entailment", "contradiction")


def _clean(text: str) -> str:
    """A sentence as a TSV field: no tab, no line break, not empty."""
    return " ".join(text.split()) or "."


def _mnli(i: int, first: str, second: str) -> list[str]:
    return [str(i), "p", "q", "fiction", "( a )", "( b )", "(S a)", "(S b)", first, second, "n/a"]


_HEADERS: Mapping[str, str] = {
    "sst-2": "sentence\tlabel",
    "mrpc": "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String",
    "sts-b": "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\t"
    "sentence2\tscore",
    "qqp": "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate",
    "mnli": "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\t"
    "sentence1_parse\tsentence2_parse\tsentence1\tsentence2\tlabel1\tgold_label",
    "qnli": "index\tquestion\tsentence\tlabel",
    "rte": "index\tsentence1\tsentence2\tlabel",
    "wnli": "index\tsentence1\tsentence2\tlabel",
    "ax": "index\tsentence1\tsentence2",
}
_ROWS: Mapping[str, Row] = {
    "cola": lambda i, a, b: ["gj04", str(i % 2), "*" if i % 2 == 0 else "", a],
    "sst-2": lambda i, a, b: [a, str(i % 2)],
    "mrpc": lambda i, a, b: [str(i % 2), str(1000 + i), str(2000 + i), a, b],
    "sts-b": lambda i, a, b: [str(i), "news", "f", "2012", str(i), "x", "y", a, b, f"{i % 26 / 5}"],
    "qqp": lambda i, a, b: [str(i), str(2 * i), str(2 * i + 1), a, b, str(i % 2)],
    "mnli": lambda i, a, b: [*_mnli(i, a, b), _NLI[i % 3]],
    "qnli": lambda i, a, b: [str(i), a, b, _ENTAILMENT[i % 2]],
    "rte": lambda i, a, b: [str(i), a, b, _ENTAILMENT[i % 2]],
    "wnli": lambda i, a, b: [str(i), a, b, str(i % 2)],
    "ax": lambda i, a, b: [str(i + 5), a, b],  # its row numbers do not begin at 0
}
_FILES: Mapping[str, tuple[str, ...]] = {
    "mnli": ("train.tsv", "dev_matched.tsv", "dev_mismatched.tsv"),
    "ax": ("diagnostic.tsv",),
}


def write_fixture(folder: Path, task: str, sentences: Sequence[str]) -> Path:
    """Write ``train.tsv`` and the dev file of a task; of AX, the diagnostic set, its one file.

    Args:
        folder: created; receives the files.
        task: lower-case name of one of the nine tasks, or ``ax``.
        sentences: texts; consecutive ones make the pairs.

    Returns:
        The folder. As in the official files, CoLA has no header and MRPC begins with a
        byte-order mark. Two tasks have the line ends of Windows.
    """
    folder.mkdir(parents=True, exist_ok=True)
    texts = [_clean(text) for text in sentences]
    pairs = zip(texts, texts[1:] + texts[:1], strict=True)
    lines = ["\t".join(_ROWS[task](i, a, b)) for i, (a, b) in enumerate(pairs)]
    header = [_HEADERS[task]] if task in _HEADERS else []
    encoding = "utf-8-sig" if task == "mrpc" else "utf-8"
    ends = "\r\n" if task in ("rte", "qnli") else "\n"
    for name in _FILES.get(task, ("train.tsv", "dev.tsv")):
        (folder / name).write_text(
            "\n".join([*header, *lines]) + "\n", encoding=encoding, newline=ends
        )
    return folder
