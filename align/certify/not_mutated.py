"""Lines that the cases run and no comparison can see, each with its reason: no mutant is made of
them.

An entry names a file, a class or function of it (``file::Class.function``), or the lines that hold
a text (``file::function::text``, ``file::::text``), as in `align.cases.covered.not_aligned`, whose
lines are left out as well. An entry that names no line is refused by a test.
"""

from __future__ import annotations

from dataclasses import dataclass

from align.cases.covered.coverage_verdict import NotAligned
from align.cases.covered.syntax import SourceFile


@dataclass(frozen=True)
class NotMutated:
    """An entry of the list.

    Attributes:
        place: see above.
        reason: why no comparison can see an edit there.
    """

    place: str
    reason: str

    def lines(self, file: str, source: SourceFile) -> frozenset[int]:
        """The lines of a file that it names: statements that begin with such a line, whole, and
        single lines of longer ones."""
        statements = NotAligned(self.place, self.reason).lines(file, source)
        path, _, rest = self.place.partition("::")
        name, _, text = rest.partition("::")
        if path != file or not text:
            return statements
        inside = source.definitions.get(name) if name else range(1, len(source.text) + 1)
        return statements | {line for line in inside or () if text in source.line(line)}


def _because(reason: str, *places: str) -> tuple[NotMutated, ...]:
    return tuple(NotMutated(place, reason) for place in places)


NOT_MUTATED: tuple[NotMutated, ...] = (
    *_because(
        "half precision and automatic mixed precision, which the suite does not train in: in "
        "float32 and float64 the line hands on what it is given",
        "functional.py::_full_precision",
        "train/losses.py::::_HALF",
        "train/optimizer.py::::_HALF",
        "train/optimizer.py::::has_master",
        "train/optimizer.py::::if master is",
        "train/evaluation.py::_at_least_float32",
        "train/image_scores.py::predict::precise =",
        "train/glue_run.py::::fp16",
        "train/glue_run.py::_arguments::bf16",
        "train/image_run.py::_arguments::fp16",
        "train/image_run.py::_arguments::bf16",
    ),
    *_because(
        "which names an option may have: read by a refusal only",
        "functional.py::::CENTERINGS =",
        "functional.py::::COVARIANCE_SCALES =",
        "functional.py::::ON_ZERO =",
        "vision_config.py::::TOKEN_TYPES =",
        "vision_config.py::::DENSE_NORMS =",
        "vision_config.py::::POSITIONS =",
        "config.py::::LARGEST_EPSILON =",
        "data/token_features.py::::PADDINGS =",
        "data/tokenization.py::::TIE_BREAKS =",
        "data/tokenization.py::::_SHORTEST =",
        "data/image_erasing.py::::MODES =",
        "data/image_dataset.py::::ON_CORRUPT =",
        "data/image_random.py::::LIMIT =",
    ),
    *_because(
        "defaults of our own functions that every call of the product sets; where the original has "
        "one, defaults_image_data compares it",
        "data/image_batches.py::TrainCollate.__init__::seed: int",
        "data/image_dataset.py::ImageTrainSet.__init__::seed: int",
        "data/image_dataset.py::::on_corrupt: str",
        "data/image_loader.py::ImageLoader.__init__::workers: int",
        "train/feeding.py::MicroBatches.__init__::rank: int",
        "train/feeding.py::MicroBatches.__init__::world: int",
    ),
    *_because(
        "MRPC as its authors distribute it: as in the list of what is not aligned",
        "data/glue.py::::MEMBER_ID_COLUMNS =",
    ),
    *_because(
        "how many batches there are: asked for by a refusal only",
        "data/batching.py::EpochOrder.__len__",
    ),
    *_because(
        "the step of a moment that was loaded without its counters, which no run of this project "
        "leaves: tests/sot_paddle/train",
        "train/optimizer.py::::_VANISHED_POWER",
    ),
    *_because(
        "looks at options: passes them or refuses",
        "config.py::_matches",
        "config.py::build_record::prefix =",
        "config.py::build_record::annotations =",
        "config.py::build_record::fields =",
        "vision_config.py::sort_options::known =",
        "vision_config.py::sort_options::unknown =",
        "data/image_augment.py::AugmentConfig.__post_init__",
        "data/image_transforms.py::EvalTransform.__post_init__",
        "data/batching.py::EpochOrder.__post_init__",
    ),
    *_because(
        "looks at what a model is given: passes it or refuses",
        "backbones/inputs.py",
    ),
    *_because(
        "says something: a log, a line of progress, what a run leaves for its reader",
        "published.py::::_LOG =",
        "published.py::_known",
        "published.py::_ignore",
        "published.py::::_ignore(",
        "data/image_loader.py::::logger =",
        "data/tsv.py::::logger =",
        "data/image_folder.py::::SHOWN =",
        "data/imagenet_a.py::::SHOWN =",
        "data/image_randaugment.py::::SECTIONS =",
        "train/evaluation.py::::_REPORT_EVERY =",
        "train/image_scores.py::::_REPORT_EVERY =",
        "train/image_scores.py::predict::done",
        "train/image_scores.py::predict::started",
        "train/glue_run.py::_describe_model",
        "train/glue_run.py::_train::effective =",
        "train/glue_run.py::_train::run.result[",
        "train/image_evaluation.py::_predictions",
        "train/image_run.py::_train::per_step",
        "data/tsv.py::::ends_with_newline =",
        "train/metrics.py::::warnings.",
        "train/task_data.py::::tempfile.TemporaryDirectory(",
        "train/image_run.py::_finish::shown =",
        "train/image_run.py::_finish::best_folder =",
        "train/image_run.py::_finish::kept =",
        "train/image_run.py::_finish::there =",
        "train/image_run.py::_finish::where =",
        "train/trainer.py::ExactTrainer.log",
        "train/trainer.py::ExactTrainer._check_loss_valid",
    ),
    *_because(
        "names, folders and files of a run, and what it refuses to continue: what is read back is "
        "compared, the rest is tested under tests/sot_paddle/train",
        "atomic.py",
        "train/model_folder.py",
        "train/recipe.py::_flat",
        "train/run.py",
        "train/glue_run.py::run_once::if config.overwrite_output_dir",
        "train/glue_run.py::run_once::record =",
        "train/glue_run.py::_recipe::identity",
        "train/glue_run.py::_recipe::evaluation_data=",
        "train/glue_run.py::_recipe::keep",
        "train/glue_run.py::_recipe::task_data.fingerprint(",
        "train/image_run.py::run_training::if config.overwrite_output_dir",
        "train/image_run.py::run_training::record =",
        "train/image_run.py::_record",
        "train/image_run.py::folder_use",
        "train/image_run.py::_recipe::identity",
        "train/image_run.py::_recipe::measured",
        "train/image_run.py::_recipe::evaluation_data=",
        "train/image_run.py::_recipe::keep",
        "train/recipe.py::::keep_states: int",
        "train/trainer.py::::STATE_FILES =",
        "train/trainer.py::ExactTrainer._prune",
        "train/trainer.py::ExactTrainer._write_best",
        "train/trainer.py::ExactTrainer._save_checkpoint::save_to_json",
        "train/trainer.py::ExactTrainer.__init__::self.root =",
    ),
    *_because(
        "options of paddlenlp's Trainer that it only logs, or that the recipe's own optimizer, "
        "schedule and callbacks replace; how often it logs and saves",
        "train/glue_run.py::_arguments::logging_",
        "train/glue_run.py::_arguments::learning_rate=",
        "train/glue_run.py::_arguments::per_device_",
        "train/glue_run.py::_arguments::save_steps=",
        "train/glue_run.py::_arguments::device=",
        "train/glue_run.py::_arguments::disable_tqdm=",
        "train/glue_run.py::_arguments::ddp_find_unused",
        "train/glue_run.py::_arguments::report_to=",
        "train/glue_run.py::_trainer::callbacks=",
        "train/image_run.py::_arguments::logging_",
        "train/image_run.py::_arguments::learning_rate=",
        "train/image_run.py::_arguments::per_device_",
        "train/image_run.py::_arguments::device=",
        "train/image_run.py::_arguments::disable_tqdm=",
        "train/image_run.py::_arguments::ddp_find_unused",
        "train/image_run.py::_arguments::report_to=",
    ),
    *_because(
        "speed or memory: how much is kept, in how many processes it is read",
        "train/image_splits.py::::functools.lru_cache(",
        "train/task_data.py::::functools.lru_cache(",
        "train/trainer.py::ExactTrainer._no_sync",
        "train/image_evaluation.py::::prepare_device(",
        "train/image_scores.py::predict::workers: int",
    ),
    *_because(
        "which exceptions mean a damaged picture, which files are pictures, what is tried instead: "
        "tested with damaged and foreign files under tests/sot_paddle/data",
        "data/image_decoding.py::::DAMAGE",
        "data/image_folder.py::::EXTENSIONS =",
        "data/image_dataset.py::::REPLACEMENT_TRIES",
        "data/image_batches.py::::corrupt",
    ),
    *_because(
        "sentences that both sides read: another word is another input",
        "data/real_sentences.py",
    ),
)
