"""What of the product is deliberately not compared with the reference, each with its reason.

An entry names a file, a class or function of it (``file::Class.function``), or the statements whose
first line holds a text (``file::function::text``). Lines that only refuse (their block ends in
``raise``) need no entry. An entry whose lines all run is refused: take it out.
"""

from __future__ import annotations

from align.cases.covered.coverage_verdict import NotAligned


def _because(reason: str, *places: str) -> tuple[NotAligned, ...]:
    return tuple(NotAligned(place, reason) for place in places)


_OUTSIDE = (
    *_because(
        "command line, options and what is said about them: text in, a record or a line out",
        "train/arguments.py",
        "train/command_line.py",
        "train/flags.py",
        "train/image_arguments.py",
        "train/image_flags.py",
        "train/image_session.py",
        "train/session.py",
        "train/quiet.py",
        "train/failures.py",
        "train/image_evaluation.py::run_command",
        "train/image_evaluation.py::_check_destinations",
        "train/image_evaluation.py::write_files",
        "train/image_evaluation.py::print_report",
        "explain/command.py",
        "config.py::load_yaml",
        "__init__.py::__dir__",
    ),
    *_because(
        "makes the text of a refusal or a warning, no number",
        "config.py::_one_of",
        "config.py::near_names",
        "config.py::_spelled",
        "config.py::_is_number",
        "config.py::_with_point",
        "weights.py::_listed",
        "weights.py::load_weights::_LOG.warning",
        "backbones/swin.py::SwinTransformer._check_grid::expected =",
        "backbones/token_geometry.py::staged_grid::def fits",
        "backbones/token_geometry.py::staged_grid::span =",
        "backbones/token_geometry.py::staged_grid::below =",
        "backbones/token_geometry.py::staged_grid::above =",
        "backbones/token_geometry.py::staged_grid::near =",
        "backbones/inputs.py::::return str(dtype)",
        "heads/factory.py::::warnings.warn(",
        "heads/power_norm.py::::warnings.warn(",
        "data/glue.py::_locate",
        "data/glue.py::_label::expected =",
        "data/glue_tasks.py::get_task",
        "data/image_folder.py::_some",
        "data/image_folder.py::_list_classes::empty.append",
        "data/image_folder.py::::found =",
        "data/image_folder.py::::if (root / name).is_dir()",
        "data/image_folder.py::::if not root.is_dir()",
        "data/imagenet_a.py::require_synsets",
        "data/imagenet_a.py::require_imagenet_order",
        "data/tsv.py::bad_row",
        "data/vocabulary.py::load_backend::held =",
        "train/finite_numbers.py",
    ),
    *_because(
        "looks at what it is given and computes nothing: passes or refuses, tested by the refusals",
        "backbones/inputs.py::::in_dynamic_mode()",
        "backbones/inputs.py::::if self._due(",
        "backbones/inputs.py::::_refuse_mask(",
        "backbones/inputs.py::_is_no_mask",
        "data/image_random.py::generator",
    ),
    *_because(
        "reads and writes files: what is read is the same bytes or a refusal, tested with damaged "
        "files under tests/",
        "atomic.py",
        "checkpoint.py",
        "strict_json.py",
        "weights.py",
        "data/cache.py",
        "data/predictions.py",
        "data/tsv.py::read_table",
        "data/image_dataset.py::::except CorruptImage",
        "data/image_batches.py::::batch[CORRUPT]",
        "data/image_loader.py::ImageLoader._name_corrupt",
        "data/image_loader.py::ImageLoader.__iter__::if batch",
        "train/checkpointing.py",
        "train/folder_lock.py",
        "train/run_folder.py",
        "train/run_record.py",
        "train/image_model.py",
        "train/text_model.py",
        "train/pretrained.py",
    ),
    *_because(
        "progress, logs and the order of a run's events, no number of it",
        "train/callbacks.py",
        "train/brief.py",
        "train/evaluation.py::duration",
        "train/image_run.py::_describe",
        "train/image_run.py::::say(",
        "train/distributed.py::say",
    ),
    *_because(
        "tunes the CPU and describes the machine: speed, not numbers",
        "runtime.py",
        "train/device.py",
    ),
    *_because(
        "only on a GPU, which the suite does not use",
        "backbones/layers.py::BatchNorm2D._fused::if not x.place.is_cpu_place()",
        "backbones/layers.py::_moments",
        "backbones/inputs.py::::self._batches",
        "backbones/inputs.py::::return self._batches",
        "backbones/inputs.py::_extremes",
        "train/exact_state.py::_generators",
    ),
    *_because(
        "half precision, which the suite does not train in; tested on rounded weights",
        "train/optimizer.py::::weight.astype(parameter.dtype)",
        "train/exact_state.py::::_MASTER",
        "train/trainer.py::::if self.do_grad_scaling",
        "train/trainer.py::_plain",
    ),
    *_because(
        "explanations of trained models (pictures, pages, word impact), which the originals do "
        "not have; their formulas have oracles in tests/sot_paddle/explain",
        "html_page.py",
        "explain/figures.py",
        "explain/image_choice.py",
        "explain/image_maps.py",
        "explain/pages.py",
        "explain/parts.py",
        "explain/rows.py",
        "explain/sentence_choice.py",
        "explain/word_impact.py",
        "explain/word_pieces.py",
        "data/token_features.py::TokenFeatures.row",
        "data/tokenization.py::WordPieceTokenizer.tokens",
    ),
)

_BY_CHANCE = tuple(
    NotAligned(place, "a line of progress, when fifteen seconds have passed", by_chance=True)
    for place in (
        "train/evaluation.py::predict_logits::if report is not None",
        "train/image_scores.py::predict::if report is not None",
    )
)

_DATA = (
    *_because(
        "the digits of scikit-learn, which the originals do not train on: for the demo and tests",
        "data/image_digits.py",
        "train/image_splits.py::::load_digits(",
    ),
    *_because(
        "pictures from memory or from worker processes instead of files: the same bytes, which "
        "tests/sot_paddle/data compares with those of one process",
        "data/image_sources.py",
        "data/image_workers.py",
        "data/image_loader.py::ImageLoader.__iter__::self._workers.batches",
        "train/image_splits.py::_require_decodable",
        "train/image_splits.py::fingerprint",
        "train/image_splits.py::load_splits",
    ),
    *_because(
        "files that transformers' processors do not read: MRPC as its authors distribute it, and "
        "a user's own table; tests/sot_paddle/data holds them against rows written by hand",
        "data/glue.py::read_split",
        "data/glue.py::_member_ids",
        "data/glue.py::_member_pairs",
        "data/glue.py::_kept",
        "data/glue.py::::required += MEMBER_ID_COLUMNS",
        "data/glue.py::::members = _member_ids",
        "data/glue.py::::if labelled",
        "data/glue.py::::except ValueError",
        "data/own_table.py",
    ),
    *_because(
        "ImageNet-A: the originals name it and have no code for it (specs A.9); columns and "
        "synsets are held against the published lists in tests/sot_paddle/data",
        "train/image_evaluation.py::_check_classes",
        "train/image_evaluation.py::_count_classes",
        "train/image_splits.py::load_evaluation",
        "train/image_splits.py::_read_val",
    ),
    *_because(
        "counts parameters and multiply-adds; compared with hand counts and the published table "
        "in tests/sot_paddle/test_complexity.py",
        "complexity.py",
    ),
    *_because(
        "options that the originals do not have: three strengths of colour jitter, an erased "
        "share so large that ten tries fail; by value in tests/sot_paddle/data",
        "data/image_augment.py::AugmentConfig.jitter_strengths",
        "data/image_erasing.py::draw_erasures::for _ in range(TRIES)",
        "data/image_erasing.py::draw_erasures::if rows < height",
    ),
    *_because(
        "nothing to do: hands on what it was given",
        "resampling.py::resample_position_embedding::if old == new",
        "resampling.py::resample_bias_table::if old == new",
        "data/vocabulary.py::_from_vocabulary::if lines and not lines[-1]",
        "train/image_scores.py::score::if logits.shape[1] > TOP",
        "train/image_scores.py::score_classes::if not len(chosen)",
        "train/optimizer.py::::if not squares",
    ),
    *_because(
        "what Paddle may hand over and this project never does: groups of parameters as "
        "dictionaries, its own names in an optimizer's state, averages of integers, a "
        "dropout layer in the original's dictionary; by value in tests/sot_paddle",
        "train/optimizer.py::::isinstance(param_and_grad, dict)",
        "train/optimizer.py::HFAdamW.set_state_dict",
        "train/ema.py::ModelEma.update::if not paddle.is_floating_point",
        "published.py::_dropout",
    ),
)

_RUNS = (
    *_because(
        "several processes: trainer_*_2_processes of the whole suite train in two and are "
        "compared with PyTorch in one; what each share is and weighs, data_feeding_* compare",
        "train/distributed.py",
        "train/trainer.py::ExactTrainer.compute_loss::if weight != 1.0",
        "train/image_run.py::::synchronise_batch_norm",
        "train/glue_run.py::run_once::if synchronised",
        "train/task_data.py::load_task_data::if not features",
    ),
    *_because(
        "scores every checkpoint of a finished run and keeps the best: the scores and the choice "
        "are compared by evaluation_* and best_*, the files by tests/sot_paddle/train",
        "train/outcome.py",
        "train/task_data.py::evaluation_batches",
        "train/glue_run.py::_eval_steps",
        "data/batching.py::EpochOrder._samples::if self.shuffle",
        "train/image_run.py::_finish::if not evaluations",
    ),
    *_because(
        "which files a run reads: tests/sot_paddle/train and tests/sot_paddle/data",
        "train/task_data.py::TaskData.metric_task",
        "train/task_data.py::load_task_data",
        "train/task_data.py::fingerprint",
        "train/task_data.py::_task",
        "train/task_data.py::_read",
    ),
    *_because(
        "tries a model before a folder is emptied; what it computes is thrown away",
        "train/glue_run.py::_try_model",
        "train/glue_run.py::run_once::_try_model(run)",
        "train/image_run.py::_try_model",
        "train/image_run.py::::_try_model(run)",
    ),
    *_because(
        "asks whether a head is trained, and says what is ignored: passes, prints or refuses",
        "train/glue_run.py::run_once::if not config.do_train",
        "train/glue_run.py::run_once::if trainer is None",
        "train/glue_run.py::_require_head",
        "train/glue_run.py::set_up",
    ),
    *_because(
        "continues a run that had ended, or another data set of evaluation: nothing is trained; "
        "tests/sot_paddle/train",
        "train/trainer.py::ExactTrainer.resume::if step >= self.total_steps",
        "train/trainer.py::ExactTrainer._restore_progress",
        "train/trainer.py::ExactTrainer.total_steps::if self.args.max_steps",
        "train/feeding.py::Pace.position_after::if step == 0",
    ),
    *_because(
        "weights of another origin in the image tools: what align.weights converts, loaded by "
        "the load that trainer_images runs",
        "train/image_run.py::_initialise",
        "train/image_evaluation.py::find_subject",
        "train/image_evaluation.py::_trained",
        "train/image_evaluation.py::_foreign",
        "train/image_evaluation.py::_load",
        "train/image_evaluation.py::_transform",
    ),
)

NOT_ALIGNED: tuple[NotAligned, ...] = (*_OUTSIDE, *_BY_CHANCE, *_DATA, *_RUNS)
