"""Words of the embedded acceptability corpus; data only, read by ``corpus_phenomena``.

A noun is (singular, plural). A verb is (base, third person, past, past participle, -ing form).
"""

from __future__ import annotations

from typing import NamedTuple


class Verb(NamedTuple):
    """The five forms of a verb."""

    base: str
    third: str
    past: str
    participle: str
    ing: str


def _nouns(text: str) -> tuple[tuple[str, str], ...]:
    """``"boy man/men"`` to pairs; a plural that is not given is the singular with an s."""
    pairs = [word.partition("/")[::2] for word in text.split()]
    return tuple((singular, plural or f"{singular}s") for singular, plural in pairs)


def _verbs(text: str) -> tuple[Verb, ...]:
    """One verb for each line of five forms."""
    return tuple(Verb(*line.split()) for line in text.strip().splitlines())


MALE = _nouns("boy man/men king father brother uncle prince son monk")
FEMALE = _nouns("girl woman/women queen mother sister aunt princess/princesses daughter nun")
ROLES = _nouns(
    "teacher doctor student farmer artist singer lawyer driver writer soldier neighbor guest "
    "child/children judge pilot baker"
)
PEOPLE = MALE + FEMALE + ROLES
THINGS = _nouns(
    "book letter picture box/boxes key cup bottle hat coat lamp knife/knives basket blanket "
    "guitar clock mirror bag painting ring toy"
)
PLACES = _nouns("garden kitchen park office school library/libraries station village museum market")
MASS = ("water", "money", "milk", "rice", "furniture", "advice", "sand", "luggage")
MALE_NAMES = ("John", "Peter", "David", "Tom", "Robert", "Daniel")
FEMALE_NAMES = ("Mary", "Anna", "Susan", "Emma", "Laura", "Alice")
NAMES = MALE_NAMES + FEMALE_NAMES

PEOPLE_ADJECTIVES = ("old", "young", "tall", "happy", "tired", "famous", "clever", "friendly")
THING_ADJECTIVES = ("red", "heavy", "broken", "new", "small", "beautiful", "wooden", "cheap")
ADVERBS = ("quickly", "quietly", "carefully", "slowly", "gladly", "suddenly")
TIMES = ("yesterday", "last week", "on Monday", "after dinner", "this morning", "in the evening")
SINGULAR_DETERMINERS = ("this", "that", "every", "each", "another")
PLURAL_DETERMINERS = ("these", "those", "many", "several", "few", "both")

# never with an object
INTRANSITIVE = _verbs("""
arrive arrives arrived arrived arriving
laugh laughs laughed laughed laughing
smile smiles smiled smiled smiling
sneeze sneezes sneezed sneezed sneezing
disappear disappears disappeared disappeared disappearing
fall falls fell fallen falling
wait waits waited waited waiting
sleep sleeps slept slept sleeping
vanish vanishes vanished vanished vanishing
hesitate hesitates hesitated hesitated hesitating
""")

# never without an object; the object is a thing
TRANSITIVE = _verbs("""
repair repairs repaired repaired repairing
use uses used used using
borrow borrows borrowed borrowed borrowing
destroy destroys destroyed destroyed destroying
examine examines examined examined examining
carry carries carried carried carrying
lift lifts lifted lifted lifting
hold holds held held holding
find finds found found finding
take takes took taken taking
own owns owned owned owning
mention mentions mentioned mentioned mentioning
""")

# never without an object; the object is a person
SOCIAL = _verbs("""
see sees saw seen seeing
like likes liked liked liking
admire admires admired admired admiring
praise praises praised praised praising
blame blames blamed blamed blaming
trust trusts trusted trusted trusting
describe describes described described describing
criticize criticizes criticized criticized criticizing
defend defends defended defended defending
""")

# a thing and a place, both needed
PLACING = _verbs("""
put puts put put putting
place places placed placed placing
""")

# "give the girl a book" and "give a book to the girl"
DATIVE = _verbs("""
give gives gave given giving
send sends sent sent sending
show shows showed shown showing
offer offers offered offered offering
hand hands handed handed handing
lend lends lent lent lending
""")

# only "explain a book to the girl"
PREPOSITIONAL = _verbs("""
explain explains explained explained explaining
describe describes described described describing
donate donates donated donated donating
mention mentions mentioned mentioned mentioning
reveal reveals revealed revealed revealing
announce announces announced announced announcing
""")

CLAUSAL = _verbs("""
think thinks thought thought thinking
believe believes believed believed believing
say says said said saying
claim claims claimed claimed claiming
hope hopes hoped hoped hoping
""")

PARTICLE_VERBS = (
    ("picked", "up"),
    ("threw", "away"),
    ("put", "down"),
    ("turned", "over"),
    ("took", "out"),
    ("gave", "back"),
)
MODALS = ("will", "can", "must", "should", "might", "could")
