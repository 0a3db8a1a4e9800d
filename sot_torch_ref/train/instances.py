"""Instances for BERT's two tasks from a corpus in memory, as the original's records."""

import random

import numpy as np


def make_instances(
    documents: list[list[list[int]]],
    *,
    cls: int,
    sep: int,
    mask: int,
    vocab_size: int,
    max_seq_length: int = 128,
    max_predictions: int = 20,
    masked_lm_prob: float = 0.15,
    short_seq_prob: float = 0.1,
    dupe_factor: int = 5,
    seed: int = 12345,
) -> list[dict[str, np.ndarray]]:
    """All instances in their final order.

    Args:
        documents: Sentences of token ids; documents without sentences are left out.
        cls: Id of [CLS].
        sep: Id of [SEP].
        mask: Id of [MASK].
        vocab_size: Size of the vocabulary.
        max_seq_length: S.
        max_predictions: P.
        masked_lm_prob: Share of masked tokens.
        short_seq_prob: Share of shorter targets.
        dupe_factor: Passes over the documents.
        seed: Of Python's generator.

    Returns:
        input_ids, input_mask, segment_ids (S,), masked_lm_positions, masked_lm_ids,
        masked_lm_weights (P,), next_sentence_labels (1,).

    Source: specs D.1.
    """
    rng = random.Random(seed)
    documents = [list(document) for document in documents if document]
    rng.shuffle(documents)
    made = []
    for _ in range(dupe_factor):
        for which in range(len(documents)):
            pairs = _pairs(documents, which, max_seq_length - 3, short_seq_prob, rng)
            for a, b, label in pairs:
                ids = [cls] + a + [sep] + b + [sep]
                types = [0] * (len(a) + 2) + [1] * (len(b) + 1)
                limit = min(max_predictions, max(1, int(round(masked_lm_prob * len(ids)))))
                ids, places, targets = _mask(ids, {cls, sep}, mask, vocab_size, limit, rng)
                made.append(
                    {
                        "input_ids": _padded(ids, max_seq_length),
                        "input_mask": _padded([1] * len(ids), max_seq_length),
                        "segment_ids": _padded(types, max_seq_length),
                        "masked_lm_positions": _padded(places, max_predictions),
                        "masked_lm_ids": _padded(targets, max_predictions),
                        "masked_lm_weights": _padded([1] * len(places), max_predictions),
                        "next_sentence_labels": np.array([label]),
                    }
                )
    rng.shuffle(made)
    return made


def _padded(values: list[int], length: int) -> np.ndarray:
    return np.array(values + [0] * (length - len(values)))


def _pairs(documents, which, most, short, rng):
    """(A, B, label) of a document; a generator, so masking draws come between two pairs."""
    document = documents[which]
    target = most
    if rng.random() < short:
        target = rng.randint(2, most)
    position = 0
    while position < len(document):
        # the chunk: sentences from here until the target length or the document's end
        end, total = position, 0
        while True:
            total += len(document[end])
            end += 1
            if total >= target or end == len(document):
                break
        count = end - position
        a_count = 1 if count == 1 else rng.randint(1, count - 1)
        a = sum(document[position : position + a_count], [])
        if count == 1 or rng.random() < 0.5:
            label, b = 1, []
            tries = 0
            while tries < 10:
                stranger = rng.randint(0, len(documents) - 1)
                tries += 1
                if stranger != which:
                    break
            start = rng.randint(0, len(documents[stranger]) - 1)
            for sentence in documents[stranger][start:]:
                b = b + sentence
                if len(b) >= target - len(a):
                    break
            position += a_count
        else:
            label, b = 0, sum(document[position + a_count : end], [])
            position = end
        while len(a) + len(b) > most:
            from_front = rng.random() < 0.5
            if len(b) >= len(a):
                b = b[1:] if from_front else b[:-1]
            else:
                a = a[1:] if from_front else a[:-1]
        yield a, b, label


def _mask(ids, special, mask, vocab_size, limit, rng):
    """Masked ids, masked places in order, and the words that stood there."""
    order = [place for place in range(len(ids)) if ids[place] not in special]
    rng.shuffle(order)
    masked, taken = list(ids), []
    for place in order:
        if len(taken) == limit:
            break
        taken.append(place)
        if rng.random() < 0.8:
            masked[place] = mask
        else:
            keep = rng.random() < 0.5
            if not keep:
                masked[place] = rng.randint(0, vocab_size - 1)
    taken.sort()
    return masked, taken, [ids[place] for place in taken]
