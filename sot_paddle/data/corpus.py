"""The embedded data: a small acceptability corpus, laid out as CoLA's folder, and odd sentences.

A grammar made 4,000 different sentences and minimal violations of 29 phenomena (the column
``source``): word order, agreement with attractors, argument structure, determiners, reflexives,
auxiliaries, questions and islands. A sentence and its violation are in the same split, and about
two thirds are acceptable. ``train.tsv`` and ``dev.tsv`` have no header, ``test.tsv`` no labels.
"""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).with_name("acceptability")
"""For ``read_split(FOLDER, "cola", split)``, and as ``--data_dir`` of a run."""

REAL_SENTENCES: tuple[str, ...] = (
    "The committee approved the new budget after a long and rather tense debate.",
    "Nobody expected the bridge to reopen before the end of the winter.",
    "She'd've told you, but you weren't there, were you?",
    '"Don\'t," he said; "it isn\'t worth it" - and left.',
    "Prices rose by 3.5% to $1,299.99 (up from €1,250), i.e. more than in 2019/20.",
    "At 07:45 on 29/02/2024, flight AB-1234 left gate B12 for São Paulo.",
    "E = mc^2, a^2 + b^2 = c^2, and 1e-12 < eps <= 5e-8.",
    "Write to first.last+tag@example.org or see https://example.org/a_b?c=d&e=f#top.",
    "Yes.",
    "?",
    "a",
    "",
    "   ",
    "WHY IS EVERYTHING IN CAPITALS AND WHY DOES NOBODY STOP IT?!",
    "camelCaseNames, snake_case_names and kebab-case-names are all words to somebody.",
    "The café's crème brûlée was, naïvely, called a Über-dessert by Zoë and François.",
    "Straße, smørrebrød, żółw, čeština, İstanbul and Αθήνα are harder than they look.",
    "Москва и Санкт-Петербург - большие города.",
    "北京大学的学生在图书馆学习。",
    "東京タワーは333メートルです。",
    "한국어 문장도 하나 있습니다.",
    "مرحبا بالعالم",
    "The temperature fell to \u221240 \u00b0C, that is \u221240 \u00b0F.",
    "Good \U0001f44d, family \U0001f468\u200d\U0001f469\u200d\U0001f467, snowman \u2603, no snow.",
    "Curly \u201cquotes\u201d, \u2018single ones\u2019, dots\u2026 and a dash \u2014 all of them.",
    "Tabs\there, and a\nline break there,\r\nand a no-break\u00a0space.",
    "Zero\u200bwidth\u200bspaces and a soft\u00adhyphen vanish.",
    "A control \x07 character and a replacement \ufffd mark are removed.",
    "An accent without a composed form: x\u0302 and q\u0303.",
    "Literally writing [SEP] or [MASK] or [CLS] in a sentence is asking for trouble.",
    "[UNK] ##ing is not a suffix, and neither is [sep] in lower case.",
    "Pneumonoultramicroscopicsilicovolcanoconiosis is long; antidisestablishmentarianism is not.",
    "x" * 100 + " has one hundred letters.",
    "y" * 101 + " has one letter too many.",
    "(((nested [brackets {of <every> kind}])))",
    "ﬁne ligatures, ½ of a fraction, ① in a circle and ﾊﾝｶｸ in half width.",
    "The horse raced past the barn fell, which annoyed the man whose friend had trained it.",
    "Buffalo buffalo Buffalo buffalo buffalo buffalo Buffalo buffalo.",
    "First we measured it, then we measured it again, " * 12 + "and at last we believed it.",
    "one two three four five six seven eight nine ten " * 60,
)
"""Forty sentences of ours for the data step of the alignment, exports and the demo: plain and odd,
empty and longer than any position table. transformers' slow and fast tokenizers agree on them."""
