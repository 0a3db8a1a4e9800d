"""Ragged rows of token ids as padded batches.

Legend: B rows, S positions after padding.
"""

from collections.abc import Sequence

import torch
from torch.nn.utils.rnn import pad_sequence


def pad_batch(
    rows: Sequence[Sequence[int]],
    second_parts: Sequence[int],
    pad_id: int,
    length: int | None = None,
) -> dict[str, torch.Tensor]:
    """Pad rows on the right.

    Args:
        rows: Token ids of each row.
        second_parts: Number of trailing tokens of each row that belong to its second sentence.
        pad_id: Id of padding.
        length: Positions S; None = the longest row's.

    Returns:
        "input_ids", "token_type_ids" (1 = second sentence, 0 at padding) and "attention_mask"
        (1 = valid), each (B, S), int64.

    Source: specs B.2 and transformers' padding.
    """
    ids = [torch.tensor(row) for row in rows]
    kinds = [
        torch.tensor([0] * (len(row) - second) + [1] * second)
        for row, second in zip(rows, second_parts, strict=True)
    ]
    valid = [torch.ones(len(row), dtype=torch.int64) for row in rows]
    made = {
        "input_ids": pad_sequence(ids, batch_first=True, padding_value=pad_id),
        "token_type_ids": pad_sequence(kinds, batch_first=True),
        "attention_mask": pad_sequence(valid, batch_first=True),
    }
    fill = {"input_ids": pad_id, "token_type_ids": 0, "attention_mask": 0}
    more = 0 if length is None else length - made["input_ids"].shape[1]
    return {
        name: torch.nn.functional.pad(tensor, (0, more), value=fill[name])
        for name, tensor in made.items()
    }
