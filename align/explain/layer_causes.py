"""The cause of one wrong layer: formulas and experiments, the stronger evidence first.

A formula says what both sides compute, with fitted numbers: best for a single layer. An experiment
undoes a slip and sees the difference vanish, and knows the line of code: best for a container,
where a formula may describe a consequence.
"""

from __future__ import annotations

from align.explain.calls import backward_repair, search
from align.explain.hints import layer_hints
from align.pair.any_pair import AnyPair
from align.pair.isolation import Guilty

_WEAK = "is "  # "is 0.75 x the reference": true, but no cause


def forward(pair: AnyPair, guilty: Guilty) -> str:
    """The likely cause of a wrong layer of the forward pass, "" when nothing fits.

    Args:
        pair: the user's pair.
        guilty: from inject mode.
    """
    layer, module, weights = pair.layer(guilty.place)
    formula = layer_hints.explain(guilty, weights, layer, module)
    single = layer is not None and not layer.sublayers()
    if guilty.note or (single and formula and not formula.startswith(_WEAK)):
        return formula
    study = search.study(pair, guilty)
    return study.proved or formula or study.likely


def of_backward(pair: AnyPair, place: str, formula: str) -> str:
    """The likely cause of a wrong backward pass: an experiment's, else the formula's.

    Args:
        pair: the user's pair.
        place: key of the wrong layer's call.
        formula: what inject mode says of it.
    """
    return backward_repair.explain(pair, place) or formula
