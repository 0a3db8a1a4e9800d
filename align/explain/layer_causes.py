"""The cause of one wrong layer: experiments first, then what is recorded, then a guess."""

from __future__ import annotations

from align.explain.arrays.output_edits import of_output
from align.explain.calls import gradient_search, search
from align.explain.guesses import guess
from align.pair.any_pair import AnyPair
from align.pair.isolation import Guilty


def forward(pair: AnyPair, guilty: Guilty) -> str:
    """The likely cause of a wrong layer of the forward pass, "" when nothing fits.

    Args:
        pair: the user's pair.
        guilty: from inject mode.
    """
    if guilty.note:
        return guilty.note
    layer, module, weights = pair.layer(guilty.place)
    study = search.study(pair, guilty)
    said = study.proved or study.recorded or of_output(guilty, weights)
    return said or study.guess or guess(guilty, layer, module)


def of_backward(pair: AnyPair, place: str, formula: str) -> str:
    """The likely cause of a wrong backward pass: an experiment's, else the formula's.

    Args:
        pair: the user's pair.
        place: key of the wrong layer's call.
        formula: what inject mode says of it.
    """
    return gradient_search.explained(pair, place) or formula
