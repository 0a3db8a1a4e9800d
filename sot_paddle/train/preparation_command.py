"""The commands that prepare pre-training: the tokenizer, and the text as rows of token ids."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from sot_paddle.atomic import hold_beside
from sot_paddle.command_line import parse
from sot_paddle.data.pretraining.instance_files import InstanceOptions, prepare_instances
from sot_paddle.data.pretraining.prepared import MODEL, prepare_pairs, text_files, train_pieces
from sot_paddle.data.subword import SubwordTokenizer
from sot_paddle.data.tokenizers import FAMILIES
from sot_paddle.options import Options, option, record

FORMS = ("instances", "pairs", "ids")
_TEXT = "text files, or folders with *.txt: one sentence a line"


@record
class PrepareConfig(Options):
    r"""Turn text of any size into what tools/pretrain.py reads.

    What was interrupted begins anew with the same command.

    examples:
      python tools/prepare_pretraining.py --form instances --input imdb.txt \
          --tokenizer_name CHECKPOINT --dupe_factor 5 --output_dir data/imdb
      python tools/prepare_pretraining.py --form pairs --input wiki/ \
          --tokenizer_name data/sentencepiece --output_dir data/pairs
    """

    program = "prepare_pretraining.py"

    input: tuple[str, ...] = option((), _TEXT + "; instances: an empty line between documents")
    output_dir: str = option("", "folder of this preparation alone")
    form: str = option(
        "pairs",
        "instances (masked words and next sentence), pairs (shuffled pairs of lines), or ids "
        "(lines of token ids, as other programs write them)",
        choices=FORMS,
    )
    tokenizer_name: str = option("", "folder with the vocabulary")
    do_lower_case: bool | None = option(None, "lower-case the text, as the vocabulary if not given")
    max_seq_length: int = option(128, "instances: tokens of a row", low=8)
    max_predictions_per_seq: int = option(20, "instances: masked words of a row", low=1)
    masked_lm_prob: float = option(0.15, "instances: share of masked words", low=0, high=1)
    short_seq_prob: float = option(0.1, "instances: share of shorter rows", low=0, high=1)
    dupe_factor: int = option(10, "instances: passes with other masks", low=1)
    random_seed: int = option(12345, "of every draw", low=0)
    keep_order: bool = option(False, "pairs, ids: do not shuffle")
    vocab_size: int | None = option(None, "ids: token ids are below it", low=1)

    def __post_init__(self) -> None:
        self.require(
            *("input", "output_dir", "vocab_size" if self.form == "ids" else "tokenizer_name")
        )


@record
class TokenizerConfig(Options):
    """Train a SentencePiece model on text of any size.

    example:
      python tools/train_tokenizer.py --input wiki/ --output_dir data/sentencepiece
    """

    program = "train_tokenizer.py"

    input: tuple[str, ...] = option((), _TEXT)
    output_dir: str = option("", "folder of this training alone")
    vocab_size: int = option(30000, "pieces of the model", low=4)
    sentences: int = option(10_000_000, "lines to train on, evenly spread over the text", low=1)

    def __post_init__(self) -> None:
        self.require("input", "output_dir")


def prepare(arguments: Sequence[str]) -> None:
    """Run ``tools/prepare_pretraining.py``."""
    config = parse(PrepareConfig, arguments)
    files, folder = text_files(config.input), Path(config.output_dir)
    if config.form == "ids":
        tokenizer, vocab_size = None, config.vocab_size
    else:
        tokenizer = find_tokenizer(
            Path(config.tokenizer_name), config.do_lower_case, config.max_seq_length
        )
        vocab_size = tokenizer.vocab_size
    folder.parent.mkdir(parents=True, exist_ok=True)
    with hold_beside(folder):
        if config.form == "instances":
            options = InstanceOptions(
                first=tokenizer.form.begin[0],
                separator=tokenizer.form.between[0],
                mask=tokenizer.mask_id,
                vocab_size=vocab_size,
                max_seq_length=config.max_seq_length,
                max_predictions=config.max_predictions_per_seq,
                masked_share=config.masked_lm_prob,
                short_share=config.short_seq_prob,
            )
            passes, seed = config.dupe_factor, config.random_seed
            count = prepare_instances(files, tokenizer, folder, options, dupes=passes, seed=seed)
        else:
            count = prepare_pairs(
                files,
                tokenizer,
                folder,
                vocab_size=vocab_size,
                seed=config.random_seed,
                shuffle=not config.keep_order,
            )
    print(f"{count:,} {config.form} in {folder}", file=sys.stderr)


def train_tokenizer(arguments: Sequence[str]) -> None:
    """Run ``tools/train_tokenizer.py``."""
    config = parse(TokenizerConfig, arguments)
    files, folder = text_files(config.input), Path(config.output_dir)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with hold_beside(folder):
        train_pieces(files, folder, vocab_size=config.vocab_size, sentences=config.sentences)
    print(f"{config.vocab_size:,} pieces in {folder / MODEL}", file=sys.stderr)


def find_tokenizer(folder: Path, lower: bool | None, max_length: int) -> SubwordTokenizer:
    """The tokenizer of a folder, by the files that are there."""
    if not folder.is_dir():
        raise ValueError(f"--tokenizer_name {folder} is no folder")
    present = [path.name for path in folder.iterdir()]
    families = [FAMILIES[name] for name in ("wordpiece", "sentencepiece")]
    for family in families:
        if family.whole(present):
            return family.build(folder, do_lower_case=lower, max_length=max_length)
    expected = ", ".join(family.said for family in families)
    raise ValueError(f"--tokenizer_name {folder}: no vocabulary there, expected {expected}")
