"""Kinds of case for calls that the steps of a whole model do not make: plain data."""

from __future__ import annotations

from dataclasses import dataclass

from align.case_kinds import ModelCase


@dataclass(frozen=True)
class PlainCallCase(ModelCase):
    """A model called as in a README, ``model(input_ids)`` or ``model(images)``: nothing else given.

    No mask, no token types and no taps are asked for; only the logits come back.
    """
