"""WordPiece tokenization of sentences and pairs.

Beside the notes of subword.py: without lower-casing, combining accents stay as they are
(transformers 2.2.1 and the fast tokenizer); today's slow tokenizer composes them first (NFC). Code
points that no Unicode version assigns are kept (as the fast tokenizer does), the slow one drops
them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sot_paddle.data.subword import Pipeline, RowForm, SubwordTokenizer
from sot_paddle.data.vocabulary import SPECIAL_TOKENS, load_backend


class WordPieceTokenizer(SubwordTokenizer):
    """Texts to token ids as BERT expects them: ``[CLS] a [SEP]`` or ``[CLS] a [SEP] b [SEP]``.

    Args:
        source: a folder with ``tokenizer.json`` or ``vocab.txt`` (``tokenizer_config.json`` is
            read where it is), or a vocabulary file.
        strip_accents: None follows the folder's setting, then ``do_lower_case``.
        options: of `SubwordTokenizer`. ``do_lower_case`` lower-cases the text and strips its
            accents. It is really applied, also with a cased vocabulary (as the original's command
            does) and switched off with an uncased one. None takes the folder's setting, True
            where there is none.

    Raises:
        DataError: no vocabulary there, a broken one, or an impossible option.
    """

    def __init__(
        self, source: str | Path, *, strip_accents: bool | None = None, **options: Any
    ) -> None:
        self._strip_accents = strip_accents
        super().__init__(source, **options)

    def _read(self, source: Path, do_lower_case: bool | None) -> Pipeline:
        from tokenizers import normalizers, pre_tokenizers

        backend, settings = load_backend(source)
        lower = settings.get("do_lower_case") if do_lower_case is None else do_lower_case
        lower = True if lower is None else bool(lower)
        given = self._strip_accents
        accents = settings.get("strip_accents") if given is None else given
        chinese = settings.get("tokenize_chinese_chars", True)
        backend.normalizer = normalizers.BertNormalizer(
            handle_chinese_chars=chinese, strip_accents=accents, lowercase=lower
        )
        backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        backend.no_padding()
        backend.no_truncation()
        backend.add_special_tokens(list(SPECIAL_TOKENS))
        pad, _, first, separator, mask = map(backend.token_to_id, SPECIAL_TOKENS)
        form = RowForm((first,), (separator,), (separator,), typed=True)
        return Pipeline(backend, form, pad, mask, lower)
