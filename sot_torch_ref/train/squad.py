"""SQuAD 2.0 as BERTVision prepares and decodes it, on transformers' fast tokenizer.

Source: specs C.4.
"""

from typing import Any

Offsets = list[tuple[int, int] | None]


def window_features(
    tokenizer: Any,
    question: str,
    context: str,
    answer: tuple[str, int] | None,
    *,
    max_length: int = 384,
    stride: int = 128,
) -> list[dict[str, Any]]:
    """Padded rows of one question, with the labels of the released code.

    Args:
        tokenizer: A fast tokenizer of transformers that pads on the right.
        question: Its text.
        context: The paragraph.
        answer: First gold answer and its first character; None if there is none.
        max_length: Length of every row.
        stride: Overlap of consecutive windows, in tokens.

    Returns:
        One mapping a window: input_ids, token_type_ids, attention_mask, offsets (None outside the
        context), start and end.
    """
    encoded = tokenizer(
        question,
        context,
        truncation="only_second",
        max_length=max_length,
        stride=stride,
        padding="max_length",
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )
    rows = []
    for at, offsets in enumerate(encoded["offset_mapping"]):
        parts = encoded.sequence_ids(at)
        row = {key: encoded[key][at] for key in ("input_ids", "token_type_ids", "attention_mask")}
        row["offsets"] = [
            tuple(offset) if part == 1 else None
            for offset, part in zip(offsets, parts, strict=True)
        ]
        row["start"], row["end"] = _labels(offsets, parts, answer)
        rows.append(row)
    return rows


def _labels(
    offsets: list[tuple[int, int]], parts: list[int | None], answer: tuple[str, int] | None
) -> tuple[int, int]:
    """Token positions of an answer; the class token if the window does not contain it.

    QUIRK: the search for the start runs on over [SEP] and padding, whose offsets are (0, 0), if
    the last context token is reached.
    """
    context = [at for at, part in enumerate(parts) if part == 1]
    if answer is None or not context:
        return 0, 0
    text, first = answer
    if offsets[context[0]][0] > first or offsets[context[-1]][1] < first + len(text):
        return 0, 0
    start = context[0]
    while start < len(offsets) and offsets[start][0] <= first:
        start += 1
    end = context[-1]
    while offsets[end][1] >= first + len(text):
        end -= 1
    return start - 1, end + 1


def best_answer(
    context: str,
    rows: list[tuple[Offsets, list[float], list[float]]],
    *,
    n_best: int = 20,
    max_tokens: int = 30,
    smallest_null: bool = False,
) -> tuple[str, float, float]:
    """Decode one question.

    Args:
        context: The paragraph.
        rows: (offsets, start scores, end scores) of each window; offsets are None outside the
            context, the class token is first.
        n_best: Starts and ends of a window that are combined.
        max_tokens: Longest answer.
        smallest_null: Take the smallest null score over the windows; QUIRK: the released code
            keeps the largest.

    Returns:
        (answer or "", score of the best span, null score).
    """
    null = None
    best, best_score = "", None
    for offsets, starts, ends in rows:
        score = starts[0] + ends[0]
        if null is None or (score < null if smallest_null else score > null):
            null = score
        ranked_starts, ranked_ends = (
            sorted(range(len(scores)), key=scores.__getitem__, reverse=True)[:n_best]
            for scores in (starts, ends)
        )
        for start in ranked_starts:
            for end in ranked_ends:
                if offsets[start] is None or offsets[end] is None:
                    continue
                if end < start or end - start + 1 > max_tokens:
                    continue
                score = starts[start] + ends[end]
                if best_score is None or score > best_score:
                    best_score, best = score, context[offsets[start][0] : offsets[end][1]]
    score = 0.0 if best_score is None else best_score
    return (best if score > null else ""), score, null
