"""What of the product is deliberately not compared with the reference, each with its reason.

An entry names a file, a class or function of it (``file::Class.function``), or the statements whose
first line holds a text (``file::function::text``). Lines that only refuse (their block ends in
``raise``) need no entry. An entry whose lines all run is refused: take it out.
"""

from __future__ import annotations

from align.covered.verdict import NotAligned


def _because(reason: str, *places: str) -> tuple[NotAligned, ...]:
    return tuple(NotAligned(place, reason) for place in places)


NOT_ALIGNED: tuple[NotAligned, ...] = (
    *_because(
        "command line, options and the messages about them: text in, a record or a line out",
        "train/arguments.py",
        "train/command_line.py",
        "train/flags.py",
        "train/image_arguments.py",
        "train/image_flags.py",
        "train/image_session.py",
        "train/session.py",
        "train/quiet.py",
        "train/failures.py",
        "explain/command.py",
        "config.py::_one_of",
        "config.py::near_names",
        "config.py::_spelled",
        "config.py::_is_number",
        "config.py::_with_point",
        "config.py::load_yaml",
        "registry.py::list_models",
        "__init__.py::__dir__",
    ),
    *_because(
        "reads and writes files: what is read is the same bytes or a refusal, tested with damaged "
        "files under tests/",
        "checkpoint.py",
        "data/atomic.py",
        "data/cache.py",
        "data/predictions.py",
        "train/checkpointing.py",
        "train/model_folder.py",
        "train/run_folder.py",
        "train/image_model.py",
        "train/text_model.py",
        "train/pretrained.py",
    ),
    *_because(
        "progress, logs and the order of a run's events, no number of it",
        "train/callbacks.py",
        "train/brief.py",
        "train/evaluation.py::duration",
    ),
    *_because(
        "tunes the CPU and describes the machine: speed, not numbers",
        "runtime.py",
        "train/device.py",
    ),
    *_because("only on a GPU, which the suite does not use", "train/gpu_check.py"),
    *_because(
        "explanations of trained models (pictures, pages, word impact), which the originals do "
        "not have; their formulas have oracles in tests/sot_paddle/explain",
        "explain/figures.py",
        "explain/image_choice.py",
        "explain/image_maps.py",
        "explain/pages.py",
        "explain/parts.py",
        "explain/rows.py",
        "explain/sentence_choice.py",
        "explain/word_impact.py",
        "explain/word_pieces.py",
    ),
    *_because(
        "makes the embedded sentences, a fixed file of text that both sides read",
        "data/corpus.py",
        "data/corpus_clauses.py",
        "data/corpus_phenomena.py",
    ),
    *_because(
        "counts parameters and multiply-adds; compared with hand counts and the published table "
        "in tests/sot_paddle/test_complexity.py",
        "complexity.py",
    ),
    *_because(
        "exact form that the tests hold the iteration against; no model computes it",
        "functional.py::sv_power_norm_exact",
        "functional.py::matrix_sqrt_exact",
    ),
)
