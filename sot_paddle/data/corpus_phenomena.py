"""The grammar of the embedded corpus: each phenomenon makes a sentence and its minimal violation.

A phenomenon is a function of a random generator that returns (acceptable, unacceptable) without
capital letter and full stop. ``PHENOMENA`` names them; the name is the ``source`` column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from types import MappingProxyType

from sot_paddle.data import corpus_lexicon as lexicon

Pair = tuple[str, str]
Phenomenon = Callable[[Random], Pair]


def a_person(r: Random, plural: bool | None = None) -> str:
    """A person, now and then with an adjective; ``plural`` None leaves the number open."""
    number = r.random() < 0.4 if plural is None else plural
    noun = r.choice(lexicon.PEOPLE)[number]
    return (
        f"the {r.choice(lexicon.PEOPLE_ADJECTIVES)} {noun}" if r.random() < 0.4 else f"the {noun}"
    )


def a_thing(r: Random, plural: bool | None = None) -> str:
    """A thing, now and then with an adjective; ``plural`` None leaves the number open."""
    number = r.random() < 0.4 if plural is None else plural
    noun = r.choice(lexicon.THINGS)[number]
    return f"the {r.choice(lexicon.THING_ADJECTIVES)} {noun}" if r.random() < 0.4 else f"the {noun}"


def a_place(r: Random) -> str:
    """A phrase of place."""
    return f"{r.choice(('in', 'near', 'behind'))} the {r.choice(lexicon.PLACES)[0]}"


def a_subject(r: Random) -> str:
    """A name or a person."""
    return r.choice(lexicon.NAMES) if r.random() < 0.4 else a_person(r)


def framed(r: Random, pair: Pair) -> Pair:
    """Put the same time phrase after both sentences, now and then."""
    if r.random() < 0.6:
        return pair
    time = r.choice(lexicon.TIMES)
    return f"{pair[0]} {time}", f"{pair[1]} {time}"


def _adjective_order(r: Random) -> Pair:
    adjective, noun = (
        r.choice(lexicon.PEOPLE_ADJECTIVES),
        r.choice(lexicon.PEOPLE)[r.random() < 0.4],
    )
    rest = f"{r.choice(lexicon.TRANSITIVE).past} {a_thing(r)}"
    return framed(r, (f"the {adjective} {noun} {rest}", f"the {noun} {adjective} {rest}"))


def _object_order(r: Random) -> Pair:
    subject, verb, thing = a_subject(r), r.choice(lexicon.TRANSITIVE).past, a_thing(r)
    return framed(r, (f"{subject} {verb} {thing}", f"{subject} {thing} {verb}"))


def _determiner_order(r: Random) -> Pair:
    noun = r.choice(lexicon.THINGS)[r.random() < 0.4]
    start = f"{a_subject(r)} {r.choice(lexicon.TRANSITIVE).past}"
    return framed(r, (f"{start} the {noun}", f"{start} {noun} the"))


def _adverb_order(r: Random) -> Pair:
    subject, verb, thing = a_subject(r), r.choice(lexicon.TRANSITIVE).past, a_thing(r)
    adverb = r.choice(lexicon.ADVERBS)
    good = (
        f"{subject} {adverb} {verb} {thing}"
        if r.random() < 0.5
        else f"{subject} {verb} {thing} {adverb}"
    )
    return good, f"{subject} {verb} {adverb} {thing}"


def _particle_order(r: Random) -> Pair:
    (verb, particle), subject = r.choice(lexicon.PARTICLE_VERBS), a_subject(r)
    pronoun = r.choice(("it", "them"))
    return framed(
        r, (f"{subject} {verb} {pronoun} {particle}", f"{subject} {verb} {particle} {pronoun}")
    )


def _agreement(r: Random) -> Pair:
    plural = r.random() < 0.5
    verb, subject = r.choice(lexicon.INTRANSITIVE), a_person(r, plural)
    right, wrong = (verb.base, verb.third) if plural else (verb.third, verb.base)
    place = a_place(r)
    return f"{subject} {right} {place}", f"{subject} {wrong} {place}"


def _agreement_attractor(r: Random) -> Pair:
    plural = r.random() < 0.5
    head, other = r.choice(lexicon.THINGS)[plural], r.choice(lexicon.PEOPLE)[not plural]
    start = f"the {head} {r.choice(('of', 'near', 'behind', 'for'))} the {other}"
    end = r.choice(lexicon.THING_ADJECTIVES)
    right, wrong = ("are", "is") if plural else ("is", "are")
    return f"{start} {right} {end}", f"{start} {wrong} {end}"


def _agreement_relative(r: Random) -> Pair:
    plural = r.random() < 0.5
    social, verb = r.choice(lexicon.SOCIAL), r.choice(lexicon.INTRANSITIVE)
    start = f"{a_person(r, plural)} that {a_person(r, not plural)} {social.past}"
    right, wrong = (verb.base, verb.third) if plural else (verb.third, verb.base)
    return f"{start} often {right}", f"{start} often {wrong}"


def _intransitive(r: Random) -> Pair:
    subject, verb = a_subject(r), r.choice(lexicon.INTRANSITIVE).past
    place = a_place(r)
    return framed(r, (f"{subject} {verb} {place}", f"{subject} {verb} {a_thing(r)} {place}"))


def _transitive(r: Random) -> Pair:
    subject, verb = a_subject(r), r.choice(lexicon.TRANSITIVE).past
    return framed(r, (f"{subject} {verb} {a_thing(r)}", f"{subject} {verb}"))


def _placing(r: Random) -> Pair:
    start = f"{a_subject(r)} {r.choice(lexicon.PLACING).past} {a_thing(r)}"
    return f"{start} {a_place(r)}", start


def _dative(r: Random) -> Pair:
    subject, thing, receiver = a_subject(r), a_thing(r), a_person(r)
    verb, fixed = r.choice(lexicon.DATIVE).past, r.choice(lexicon.PREPOSITIONAL).past
    if r.random() < 0.5:
        return f"{subject} {verb} {receiver} {thing}", f"{subject} {fixed} {receiver} {thing}"
    return f"{subject} {fixed} {thing} to {receiver}", f"{subject} {fixed} {receiver} {thing}"


def _determiner_number(r: Random) -> Pair:
    plural = r.random() < 0.5
    words = lexicon.PLURAL_DETERMINERS if plural else lexicon.SINGULAR_DETERMINERS
    noun = r.choice(lexicon.THINGS)
    start = f"{a_subject(r)} {r.choice(lexicon.TRANSITIVE).past} {r.choice(words)}"
    return framed(r, (f"{start} {noun[plural]}", f"{start} {noun[not plural]}"))


def _determiner_mass(r: Random) -> Pair:
    start, noun = f"{a_subject(r)} {r.choice(lexicon.TRANSITIVE).past}", r.choice(lexicon.MASS)
    right, wrong = r.choice((("too much", "too many"), ("some", "several"), ("a little", "a few")))
    return framed(r, (f"{start} {right} {noun}", f"{start} {wrong} {noun}"))


def _gendered(r: Random) -> tuple[str, str, str]:
    """A singular subject, its reflexive, and the one of the other gender."""
    nouns, names = (lexicon.MALE, lexicon.MALE_NAMES), (lexicon.FEMALE, lexicon.FEMALE_NAMES)
    kind = r.random() < 0.5
    group = (nouns, names)[kind]
    subject = f"the {r.choice(group[0])[0]}" if r.random() < 0.6 else r.choice(group[1])
    forms = ("himself", "herself")
    return subject, forms[kind], forms[not kind]


def _reflexive_gender(r: Random) -> Pair:
    (subject, right, wrong), verb = _gendered(r), r.choice(lexicon.SOCIAL).past
    return framed(r, (f"{subject} {verb} {right}", f"{subject} {verb} {wrong}"))


def _reflexive_number(r: Random) -> Pair:
    subject, verb = a_person(r, True), r.choice(lexicon.SOCIAL).past
    wrong = r.choice(("himself", "herself", "itself"))
    return framed(r, (f"{subject} {verb} themselves", f"{subject} {verb} {wrong}"))


def _reflexive_binding(r: Random) -> Pair:
    """The reflexive belongs to the subject of its own clause."""
    (subject, right, _), verb = _gendered(r), r.choice(lexicon.SOCIAL).past
    start = f"{a_person(r, True)} {r.choice(lexicon.CLAUSAL).past} that {subject} {verb}"
    return f"{start} {right}", f"{start} themselves"


PHENOMENA_OF_PHRASES: Mapping[str, Phenomenon] = MappingProxyType(
    {
        "order-adj": _adjective_order,
        "order-obj": _object_order,
        "order-det": _determiner_order,
        "order-adv": _adverb_order,
        "order-prt": _particle_order,
        "agree": _agreement,
        "agree-pp": _agreement_attractor,
        "agree-rel": _agreement_relative,
        "arg-intr": _intransitive,
        "arg-tran": _transitive,
        "arg-put": _placing,
        "arg-dat": _dative,
        "det-num": _determiner_number,
        "det-mass": _determiner_mass,
        "refl-gen": _reflexive_gender,
        "refl-num": _reflexive_number,
        "refl-bind": _reflexive_binding,
    }
)
