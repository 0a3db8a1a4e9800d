"""More of the corpus's grammar: auxiliaries, passives, questions, islands, negative polarity.

See :mod:`sot_paddle.data.corpus_phenomena` for what a phenomenon is. Questions end with ``?``.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from types import MappingProxyType

from sot_paddle.data import corpus_lexicon as lexicon
from sot_paddle.data.corpus_phenomena import (
    PHENOMENA_OF_PHRASES,
    Pair,
    Phenomenon,
    a_person,
    a_subject,
    a_thing,
    framed,
)


def _modal(r: Random) -> Pair:
    verb, start = r.choice(lexicon.TRANSITIVE), f"{a_subject(r)} {r.choice(lexicon.MODALS)}"
    rest, wrong = a_thing(r), r.choice((verb.third, verb.ing))
    return framed(r, (f"{start} {verb.base} {rest}", f"{start} {wrong} {rest}"))


def _perfect(r: Random) -> Pair:
    verb, start = r.choice(lexicon.TRANSITIVE), f"{a_person(r, False)} has"
    rest, wrong = a_thing(r), r.choice((verb.base, verb.ing))
    return f"{start} {verb.participle} {rest}", f"{start} {wrong} {rest}"


def _progressive(r: Random) -> Pair:
    verb, start = r.choice(lexicon.INTRANSITIVE), f"{a_person(r, False)} is"
    return f"{start} {verb.ing}", f"{start} {r.choice((verb.base, verb.third))}"


def _negation(r: Random) -> Pair:
    verb, rest = r.choice(lexicon.TRANSITIVE), a_thing(r)
    start = f"{a_person(r, False)} {r.choice(('does not', 'did not'))}"
    return framed(r, (f"{start} {verb.base} {rest}", f"{start} {verb.third} {rest}"))


def _auxiliary_order(r: Random) -> Pair:
    verb, subject, rest = r.choice(lexicon.TRANSITIVE), a_subject(r), a_thing(r)
    modal = r.choice(("must", "might", "could", "should"))
    good = f"{subject} {modal} have {verb.participle} {rest}"
    return framed(r, (good, f"{subject} have {modal} {verb.participle} {rest}"))


def _passive(r: Random) -> Pair:
    subject, agent = a_thing(r, False), a_person(r)
    right = r.choice(lexicon.TRANSITIVE).participle
    wrong = r.choice(lexicon.INTRANSITIVE).participle
    return framed(r, (f"{subject} was {right} by {agent}", f"{subject} was {wrong} by {agent}"))


def _gap(r: Random) -> Pair:
    """A fronted object leaves a gap behind."""
    verb, subject = r.choice(lexicon.TRANSITIVE), a_subject(r)
    start = f"what did {subject} {verb.base}"
    return f"{start}?", f"{start} {a_thing(r)}?"


def _inversion(r: Random) -> Pair:
    verb, subject, modal = r.choice(lexicon.TRANSITIVE), a_subject(r), r.choice(lexicon.MODALS)
    place = f" in the {r.choice(lexicon.PLACES)[0]}"
    good = f"what {modal} {subject} {verb.base}{place}?"
    return good, f"what {subject} {modal} {verb.base}{place}?"


def _polar_question(r: Random) -> Pair:
    verb, subject, rest = r.choice(lexicon.TRANSITIVE), a_subject(r), a_thing(r)
    return f"did {subject} {verb.base} {rest}?", f"did {subject} {verb.third} {rest}?"


def _embedded_question(r: Random) -> Pair:
    verb, asker, subject = r.choice(lexicon.TRANSITIVE), a_subject(r), a_subject(r)
    start = f"{asker} {r.choice(('wondered', 'asked', 'knew'))} what"
    return f"{start} {subject} {verb.past}", f"{start} did {subject} {verb.base}"


def _island(r: Random) -> Pair:
    """An object moves out of a complement clause, not out of an adjunct."""
    outer, inner, verb = a_subject(r), a_subject(r), r.choice(lexicon.TRANSITIVE).past
    clausal, plain = r.choice(lexicon.CLAUSAL).base, r.choice(lexicon.INTRANSITIVE).base
    adjunct = r.choice(("because", "before", "while"))
    good = f"what did {outer} {clausal} that {inner} {verb}?"
    return good, f"what did {outer} {plain} {adjunct} {inner} {verb}?"


def _polarity(r: Random) -> Pair:
    verb, rest = r.choice(lexicon.TRANSITIVE), a_thing(r)
    end = f"has ever {verb.participle} {rest}"
    noun = r.choice(lexicon.ROLES)[0]
    return f"no {noun} {end}", f"{r.choice(('some', 'that'))} {noun} {end}"


PHENOMENA: Mapping[str, Phenomenon] = MappingProxyType(
    {
        **PHENOMENA_OF_PHRASES,
        "aux-modal": _modal,
        "aux-perf": _perfect,
        "aux-prog": _progressive,
        "aux-neg": _negation,
        "aux-order": _auxiliary_order,
        "passive": _passive,
        "wh-gap": _gap,
        "wh-inv": _inversion,
        "wh-polar": _polar_question,
        "wh-emb": _embedded_question,
        "wh-island": _island,
        "npi": _polarity,
    }
)
"""Name (the corpus's ``source`` column) to phenomenon."""
