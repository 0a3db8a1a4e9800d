"""BERT4Doc's fine-tuning, from the specification: files, truncation, rates of the layers.

Nothing here is shared with the port: files are read whole, with the standard library.

Source: specs D.2 and D.4.
"""

import csv
from pathlib import Path

import torch

from sot_torch_ref.train.optimizer import is_decayed

TREC_LABELS = ("LOC", "NUM", "HUM", "ENTY", "ABBR", "DESC")
"""In the order of the original's processor."""


def imdb_texts(folder: Path) -> list[tuple[int, str]]:
    """(label, text) of a split of aclImdb: the negative reviews, then the positive, by name."""
    return [
        (label, file.read_bytes().decode("utf-8"))
        for label, part in enumerate(("neg", "pos"))
        for file in sorted((folder / part).iterdir(), key=lambda file: file.name)
    ]


def trec_texts(path: Path) -> list[tuple[int, str]]:
    """(label, question) of a TREC file, in Latin-1: ``COARSE:fine question``."""
    rows = []
    for line in path.read_bytes().decode("latin-1").split("\n"):
        if line:
            kind, question = line.split(" ", 1)
            rows.append((TREC_LABELS.index(kind.split(":")[0]), question))
    return rows


def yahoo_texts(path: Path) -> list[tuple[int, str]]:
    """(label, text) of a Yahoo Answers file: title, content and answer, as far as they are there.

    The labels 1 to 10 become 0 to 9.
    """
    with path.open(newline="", encoding="utf-8") as stream:
        rows = list(csv.reader(stream))
    return [(int(row[0]) - 1, " ".join(part for part in row[1:] if part)) for row in rows]


def tab_texts(path: Path) -> list[tuple[int, str]]:
    """(label, text) of the original's own files: two columns, no header, a label's number."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [(int(label), text) for label, text in (line.split("\t") for line in lines)]


def cut(tokens: list, room: int, trunc_medium: int) -> list:
    """The original's truncation of a single text to at most ``room`` tokens.

    Args:
        tokens: Any list.
        room: M, the maximum sequence length minus 2.
        trunc_medium: -2 head, -1 tail, 0 both halves, k > 0 the first k and the last M - k.
    """
    if len(tokens) <= room:
        return tokens
    if trunc_medium == -2:
        return tokens[0:room]
    if trunc_medium == -1:
        return tokens[-room:]
    if trunc_medium == 0:
        return tokens[: room // 2] + tokens[-(room // 2) :]
    return tokens[:trunc_medium] + tokens[-(room - trunc_medium) :]


def layer_rates(count: int, rates: list[float], decay: float) -> list[float]:
    """Rates of ``count`` layers: given ones, or from one the decaying ones, its last layer's."""
    if len(rates) > 1:
        return rates
    found = [rates[0]]
    while len(found) < count:
        found.insert(0, found[0] * decay)
    return found


def discriminative_groups(
    model: torch.nn.Module, rates: list[float], rate: float, weight_decay: float
) -> list[dict]:
    """The original's parameter groups: two for each layer, and two for all that is in none.

    Args:
        model: Names of transformers, ``bert.encoder.layer.N.``.
        rates: Of the layers.
        rate: Of everything else: embeddings, pooler, classifier.
        weight_decay: Of all but biases and layer norms.

    Returns:
        Groups with "params", "names", "lr" and "weight_decay".
    """
    groups = []
    inside = [f"encoder.layer.{index}." for index in range(len(rates))]
    for mark, lr in [*zip(inside, rates, strict=True), (None, rate)]:
        for decayed in (True, False):
            chosen = [
                (name, parameter)
                for name, parameter in model.named_parameters()
                if is_decayed(name) == decayed
                and (mark in name if mark else not any(one in name for one in inside))
            ]
            groups.append(
                {
                    "params": [parameter for _, parameter in chosen],
                    "names": [name for name, _ in chosen],
                    "lr": lr,
                    "weight_decay": weight_decay if decayed else 0.0,
                }
            )
    return [group for group in groups if group["params"]]


def hooked_rates(model: torch.nn.Module, rate: float, decay: float) -> dict[str, float]:
    """What the Paddle port's hook makes: the square root of the decay on every "weight"."""
    root = torch.tensor(decay, dtype=torch.float64).sqrt().item()
    names = [name for name, _ in model.named_parameters()]
    return {name: rate * root if "weight" in name else rate for name in names}
