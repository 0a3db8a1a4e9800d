"""WordPiece tokenization of sentences and pairs.

Beside the notes of subword.py: without lower-casing, combining accents stay as they are
(transformers 2.2.1 and the fast tokenizer); today's slow tokenizer composes them first (NFC). Code
points that no Unicode version assigns are kept (as the fast tokenizer does), the slow one drops
them.
"""

from __future__ import annotations

from pathlib import Path

from sot_paddle.data.subword import RowForm, SubwordTokenizer
from sot_paddle.data.vocabulary import (
    MAX_WORD_CHARS,
    SPECIAL_TOKENS,
    load_backend,
    set_text_pipeline,
)


class WordPieceTokenizer(SubwordTokenizer):
    """Texts to token ids as BERT expects them: ``[CLS] a [SEP]`` or ``[CLS] a [SEP] b [SEP]``.

    Args:
        source: a folder with ``tokenizer.json`` or ``vocab.txt`` (``tokenizer_config.json`` is
            read where it is), or a vocabulary file.
        do_lower_case: lower-case the text and strip its accents. It is really applied, also
            with a cased vocabulary (as the original's command does) and switched off with an
            uncased one. None takes the folder's setting, True where there is none.
        strip_accents: None follows the folder's setting, then ``do_lower_case``.
        max_length: tokens of a row at most, special ones included; at least 8.
        tie_break: see `sot_paddle.data.subword.truncated_lengths`.

    Raises:
        DataError: no vocabulary there, a broken one, or an impossible option.
    """

    def __init__(
        self,
        source: str | Path,
        *,
        do_lower_case: bool | None = None,
        strip_accents: bool | None = None,
        max_length: int = 128,
        tie_break: str = "slow",
    ) -> None:
        backend, settings = load_backend(Path(source))
        lower = settings.get("do_lower_case") if do_lower_case is None else do_lower_case
        lower = True if lower is None else bool(lower)
        accents = settings.get("strip_accents") if strip_accents is None else strip_accents
        chinese = settings.get("tokenize_chinese_chars", True)
        set_text_pipeline(backend, lower, accents, chinese)
        pad, _, first, separator, mask = map(backend.token_to_id, SPECIAL_TOKENS)
        super().__init__(
            backend,
            form=RowForm((first,), (separator,), (separator,), typed=True),
            pad_id=pad,
            mask_id=mask,
            do_lower_case=lower,
            max_length=max_length,
            tie_break=tie_break,
            settings=f"{MAX_WORD_CHARS} ",
        )
