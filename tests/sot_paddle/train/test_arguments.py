"""Command lines of text and images: flags, files, refusals, the published configurations."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from sot_paddle.command_line import parse
from sot_paddle.config import sort_options
from sot_paddle.options import Options
from sot_paddle.tasks.document_options import DocumentTrainConfig
from sot_paddle.tasks.glue_options import TrainConfig
from sot_paddle.tasks.image_options import ImageEvalConfig, ImageTrainConfig
from sot_paddle.tasks.pretraining_options import PretrainConfig
from sot_paddle.tasks.state_options import ExtractConfig, SquadTrainConfig, StateTrainConfig
from sot_paddle.train.image_command import rates
from sot_paddle.train.schedule import EpochRates
from sot_paddle.vision_config import SwinConfig, ViTConfig

ROOT = Path(__file__).resolve().parents[3]
CONFIGS = sorted((ROOT / "configs" / "glue").glob("*.yaml"))
TASKS = ("CoLA", "RTE", "MNLI", "QNLI")
PUBLISHED = {
    "bert_base_mgcrp": (58.03, 69.31, 84.20, 90.78),
    "bert_large_mgcrp": (61.82, 75.09, 86.46, 92.37),
    "bert_base_plain": (54.82, 67.15, 83.47, 90.11),
    "bert_large_plain": (60.63, 73.65, 85.90, 91.82),
    "openai_gpt_mgcrp": (57.25, 65.35, 82.41, 87.13),
    "openai_gpt_plain": (54.32, 63.17, 82.10, 86.36),
    "spanbert_base_mgcrp": (63.77, 77.26, 86.13, 93.31),
    "spanbert_large_mgcrp": (65.94, 79.79, 88.16, 94.49),
    "spanbert_base_plain": (57.48, 73.65, 85.53, 92.71),
    "spanbert_large_plain": (64.32, 78.34, 87.89, 94.22),
    "roberta_base_mgcrp": (65.28, 80.50, 87.90, 93.10),
    "roberta_large_mgcrp": (70.90, 88.10, 90.50, 95.00),
    "roberta_base_plain": (61.58, 77.60, 87.50, 92.70),
    "roberta_large_plain": (67.98, 86.60, 90.20, 94.70),
}
"""Model and head -> the paper's scores on TASKS."""
CHECKPOINTS = {
    "bert_base": ("bert", "bert-base-cased"),
    "bert_large": ("bert", "bert-large-cased"),
    "openai_gpt": ("openai-gpt", "openai-gpt"),
    "spanbert_base": ("spanbert", "SpanBERT/spanbert-base-cased"),
    "spanbert_large": ("spanbert", "SpanBERT/spanbert-large-cased"),
    "roberta_base": ("roberta", "roberta-base"),
    "roberta_large": ("roberta", "roberta-large"),
}
SOURCE_TEXT = """
    --model_type bert --model_name_or_path bert-base-cased --task_name RTE --do_lower_case
    --do_train --do_eval --data_dir glue/RTE --max_seq_length 128 --per_gpu_train_batch_size 32
    --learning_rate 2e-5 --num_train_epochs 10 --output_dir OUTPUT/ --eval_all_checkpoints
"""
SOURCE_COMMAND = SOURCE_TEXT.split()
MORE_FLAGS = """
    --config_name c --tokenizer_name t --cache_dir d --evaluate_during_training
    --per_gpu_eval_batch_size 8 --gradient_accumulation_steps 1 --weight_decay 0.0
    --adam_epsilon 1e-8 --max_grad_norm 1.0 --max_steps -1 --warmup_steps 0
    --logging_steps 50 --save_steps 50 --no_cuda --overwrite_output_dir --overwrite_cache
    --seed 42 --fp16_opt_level O1 --local_rank -1 --server_ip x --server_port 1
"""
HUGE = "9" * 20


def source(*flags: str, of: list[str] = SOURCE_COMMAND) -> TrainConfig:
    return parse(TrainConfig, [*of, *flags])


def test_the_source_command_is_read_unchanged() -> None:
    config = source()
    assert (config.task_name, config.learning_rate, config.max_seq_length) == ("RTE", 2e-5, 128)
    assert config.do_lower_case
    assert config.eval_all_checkpoints
    assert config.head_options["pooling"] == "mgcrp_qk"
    assert (config.optimizer, config.adam_epsilon, config.weight_decay) == ("hf_adamw", 1e-8, 0.0)
    assert (config.warmup_steps, config.lr_scheduler, config.max_grad_norm) == (0, "linear", 1.0)
    assert (config.seed, config.save_steps, config.padding) == (42, 50, "max_length")
    assert source(*MORE_FLAGS.split()).config_name == "c"


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("--q_dim 7 --head_dropout 0", {"q_dim": 7, "k_dim": 32, "head_dropout": 0.0}),
        ("--normalization none", {"normalization": "none"}),  # the identity, no default
        ("--set normalization=none --pooling mgcrp", {"normalization": "none"}),
        ("--normalization null", {"normalization": None}),
        ("--pooling none", {"pooling": "none"}),
        ("--pooling gcp_text", {"q_dim": 56}),
        ("--pooling gcp_text --q_dim 9", {"q_dim": 9}),
        ("--head plain", {"pooling": "pooler"}),
    ],
)
def test_options_of_the_head(flags: str, expected: dict) -> None:
    options = source(*flags.split()).head_options
    assert options | expected == options
    assert ("k_dim" in options) == (options["pooling"] == "mgcrp_qk")


@pytest.mark.parametrize(
    ("more", "unused"),
    [
        ("--head plain --q_dim 7 --wr_dim 9", ["q_dim", "wr_dim"]),
        ("--pooling gcp --wr_dim 9 --head_num_heads 3", ["wr_dim"]),
        ("--fusion class_token --q_dim 7", ["q_dim"]),
        ("--q_dim 7 --k_dim 3", []),
        ("--pooling mgcrp --head_num_heads 3 --wr_dim 9", []),
    ],
)
def test_sizes_that_the_head_does_not_have(more: str, unused: list[str]) -> None:
    assert source(*more.split()).unused_sizes == unused


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--set learning_rate=3e-5", "learning_rate is given twice"),
        ("--set seed", "needs NAME=VALUE"),
        ("--set sead=1", "unknown option 'sead'; did you mean seed"),
        ("--head mgcpr", "head must be one of mgcrp, plain, got 'mgcpr'; did you mean mgcrp"),
        ("--max_steps 0", "max_steps must be positive"),
        ("--fp16 --bf16", "exclude each other"),
        ("--padding longest", "add mask_padding"),
        ("--regression", "task_name own only"),
        ("--early_stopping_patience 2 --set do_train=true", "needs do_eval"),
        ("--warmup_proportion 0.1 --warmup_steps 3", "exclude each other: give one"),
        ("--set correct_bias=false --optimizer adamw", "is an option of optimizer hf_adamw"),
    ],
)
def test_wrong_options_are_refused(flags: str, said: str) -> None:
    without = [flag for flag in SOURCE_COMMAND if flag not in ("--do_train", "--do_eval")]
    with pytest.raises(ValueError, match=said):
        source(*flags.split(), of=without)


def test_required_options_unknown_flags_and_abbreviations(capsys) -> None:
    with pytest.raises(ValueError, match="task_name is required"):
        source(of=["--do_train"])
    with pytest.raises(SystemExit, match="2"):
        source("--learn", "1")
    err = capsys.readouterr().err
    assert (err.count("\n"), "--learn" in err) == (1, True)


_MODEL = "--model_name_or_path m --output_dir o"
_GLUE = f"--task_name RTE --data_dir d {_MODEL}"
COMMANDS = {
    "text": (TrainConfig, _GLUE),
    "documents": (DocumentTrainConfig, _GLUE.replace("RTE", "IMDB")),
    "pre-training": (PretrainConfig, f"--data_dir d {_MODEL} --do_train"),
    "images": (ImageTrainConfig, "d --model sot_tiny --output_dir o"),
    "evaluation": (ImageEvalConfig, "d --model sot_tiny --weights w"),
    "squad": (SquadTrainConfig, f"{_MODEL} --do_eval"),
    "adapter": (
        StateTrainConfig,
        "--task_name RTE --states s --do_eval --output_dir o",
    ),
    "extraction": (ExtractConfig, _GLUE),
}
SIGNED = ("max_steps", "null_score_diff_threshold", "mean", "scale", "ratio", "std")
"""Options that may be negative, or are refused with the others of their kind later on."""


def refusal(command: type[Options], *flags: str) -> str:
    """What a command line is refused with, "" when it is taken."""
    try:
        parse(command, flags)
    except ValueError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", COMMANDS)
def test_every_number_of_a_command_is_finite_and_in_range(name: str, tmp_path: Path) -> None:
    command, required = COMMANDS[name][0], COMMANDS[name][1].split()
    assert refusal(command, *required) == ""
    file, numbers = tmp_path / "options.yaml", 0
    for item in dataclasses.fields(command):
        if not re.search("int|float", item.type):
            continue
        numbers += 1
        count = item.metadata.get("min_length", 3) if "tuple" in item.type else 1
        limited = (HUGE, "-3") if item.name not in SIGNED and count == 1 else ()
        for value in ("inf", *limited):
            given = f"--{item.name}=" + ",".join([value] * count)
            assert refusal(command, *required, given).startswith(item.name), given
        listed = ",".join(["nan"] * count)
        file.write_text(f"{item.name}: '{listed}'\n", encoding="utf-8")
        said = refusal(command, *required, f"--config={file}")
        assert f"--{item.name}" in required or said.startswith(f"{file}: {item.name}"), said
    assert numbers > 2


def test_a_file_goes_below_flags_and_set_and_is_named_for_what_it_says_alone(
    tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    known = (ROOT / "configs" / "glue" / "rte_bert_base_mgcrp.yaml").read_text(encoding="utf-8")
    path = tmp_path / "a.yaml"
    path.write_text(known + "adam_epsilon: 1e-7\ntokenizer_name: ~/t\n", encoding="utf-8")
    words = ["--config", str(path), "--set", "learning_rate=3e-5", "--seed", "7"]
    config = source("--set", "cache_dir=~/c", of=words)
    assert (config.learning_rate, config.seed, config.adam_epsilon) == (3e-5, 7, 1e-7)
    assert (config.tokenizer_name, config.cache_dir) == (f"{tmp_path}/t", f"{tmp_path}/c")
    path.write_text(re.sub("^seed: .*$", "seed: -3", known, flags=re.M), encoding="utf-8")
    for flags, said in (
        ("--save_steps 5", f"{path}: seed: Input should be greater than or equal to 0, got -3"),
        ("--seed -4", "seed: Input should be greater than or equal to 0, got '-4'"),
        ("--set seed=-5", "seed: Input should be greater than or equal to 0, got '-5'"),
    ):
        assert refusal(TrainConfig, "--config", str(path), *flags.split()) == said
    path.write_text("task_name: RTE\nlerning_rate: 1.0e-5\n", encoding="utf-8")
    said = f"{path}: unknown option 'lerning_rate'; did you mean learning_rate"
    assert refusal(TrainConfig, "--config", str(path)).startswith(said)


def test_there_is_one_config_for_each_published_number() -> None:
    names = {f"{task.lower()}_{model}" for model in PUBLISHED for task in TASKS}
    assert {path.stem for path in CONFIGS} == names


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_config(path: Path) -> None:
    config = source(of=["--config", str(path)])
    text = path.read_text(encoding="utf-8")
    task, model = path.stem.split("_", 1)
    name, head = model.rsplit("_", 1)
    assert (config.task_name.lower(), config.head) == (task, head)
    assert (config.model_type, config.model_name_or_path) == CHECKPOINTS[name]
    assert config.do_lower_case == (config.model_type == "bert")
    assert f"Published: {PUBLISHED[model][TASKS.index(config.task_name)]:.2f} " in text
    assert f"configs/glue/{path.name}" in text
    assert ("inferred" in text) == (model != "bert_base_mgcrp")
    assert config.per_gpu_train_batch_size * config.gradient_accumulation_steps == 64
    assert config.learning_rate == (3e-5 if task == "qnli" else 2e-5)
    assert config.num_train_epochs == 10.0
    required = {"data_dir": "d", "model_name_or_path": "m", "output_dir": "o"}
    if head == "mgcrp":
        table = TrainConfig(task_name=task, **required)
        assert config.head_options == table.head_options


IMAGE_CONFIGS = sorted((ROOT / "configs").glob("imagenet/*.yaml"))


def train(*flags: str) -> ImageTrainConfig:
    return parse(ImageTrainConfig, flags)


def evaluate(*flags: str) -> ImageEvalConfig:
    return parse(ImageEvalConfig, flags)


def test_the_original_s_training_command() -> None:
    flags = "DATA --model SoT_Tiny -b 128 --lr 1e-3 --weight-decay .03 --img-size 224 --amp"
    config = train(*flags.split())
    assert (config.data_dir, config.model, config.batch_size) == ("DATA", "sot_tiny", 128)
    assert (config.lr, config.weight_decay, config.img_size, config.amp) == (1e-3, 0.03, 224, True)
    assert rates(config) == EpochRates(learning_rate=1e-3, cooldown_epochs=0)
    assert rates(train("D", "sot_tiny", "--epochs", "2")).total_epochs == 2
    assert rates(train("D", "sot_tiny", "--cooldown-epochs", "1")).total_epochs == 301
    assert (config.drop_path, config.model_ema_decay) == (0.1, 0.99996)
    assert config.output_dir == str(Path("output") / "train" / "sot_tiny-224")
    assert config.identity() != train(*flags.split(), "--seed", "43").identity()
    assert config.identity() == train(*flags.split(), "--workers", "9").identity()
    assert config.identity() != train(*flags.split(), "--cpu-precision", "bf16").identity()
    measuring = ("--crop-pct", "0.9", "--interpolation", "bilinear")
    assert config.identity() == train(*flags.split(), *measuring).identity()


def test_the_original_s_evaluation_commands() -> None:
    config = evaluate("DATA", "SoT_Tiny", "--b", "256", "--eval_checkpoint", "W", "--IN_A")
    assert (config.model, config.batch_size, config.weights) == ("sot_tiny", 256, "W")
    assert config.imagenet_a
    ours = evaluate("DATA", "--model", "sot_tiny", "-b", "256", "--weights", "W", "--imagenet-a")
    assert ours == config


def test_every_spelling_of_timm_s_recipe_flags() -> None:
    text = """--batch-size 6 --epochs 7 --lr 0.1 --weight-decay 0.2 --warmup-lr 0.3 --min-lr 0.4
    --warmup-epochs 1 --cooldown-epochs 2 --drop-path 0.5 --drop 0.6 --aa none --reprob 0.7
    --remode pixel --mixup 0.1 --cutmix 0.2 --mixup-prob 0.3 --mixup-switch-prob 0.4
    --smoothing 0.05 --model-ema --model-ema-decay 0.8 --img-size 64 --num-classes 5 --opt adamw
     --sched cosine --seed 1 -j 3 --output out --resume auto --eval-metric loss --color-jitter 0
    --hflip 0 --scale 0.5 1 --ratio 0.9 1.1 --interpolation bilinear --train-interpolation bicubic
    --mean 0.1 0.2 0.3 --std 1 1 1 --crop-pct 0.9 --loss_add --initial-checkpoint W -vb 2
    --recovery-interval 5 --log-interval 9 --clip-grad 1 --opt-eps 1e-6 --opt-betas 0.8 0.9"""
    dashes = train("D", "--model", "sot_base", *text.split())
    # values keep their text: only what begins with two dashes is respelt
    underscored = ["--" + w[2:].replace("-", "_") if w[:2] == "--" else w for w in text.split()]
    assert train("D", "--model", "sot_base", *underscored) == dashes
    assert (dashes.aa, dashes.scale, dashes.mean) == (None, (0.5, 1.0), (0.1, 0.2, 0.3))
    assert (dashes.workers, dashes.eval_batch_multiplier, dashes.clip_grad) == (3, 2, 1.0)
    assert dashes.overrides == {
        "fusion": "sum_loss",
        "img_size": 64,
        "drop_rate": 0.6,
        "drop_path_rate": 0.5,
    }
    assert train("D", "SoT_Tiny", "--pretrained", "W").initial_checkpoint == "W"


def test_options_of_the_model() -> None:
    config = train(
        *("D", "sot_tiny", "--set", "embed_dim=48", "--set", "depth=2"),
        *("--set", "qkv_bias=true", "--set", "mlp_ratio=2.0", "--set", "seed=7"),
    )
    assert config.seed == 7
    backbone, _ = sort_options(ViTConfig, config.model_options, where="sot_tiny")
    assert (backbone.embed_dim, backbone.depth) == (48, 2)
    assert (backbone.qkv_bias, backbone.mlp_ratio) == (True, 2.0)
    swin = train("D", "swin_tiny", "--set", "depths=2,2,2,2", "--set", "normalization=none")
    assert swin.model_options == {"depths": "2,2,2,2", "normalization": "none"}
    backbone, head = sort_options(SwinConfig, swin.model_options, where="swin_tiny")
    assert (backbone.depths, head.normalization) == ((2, 2, 2, 2), "none")


def test_none_is_the_value_of_that_name_of_a_model_and_null_is_no_value() -> None:
    given = ("pooling=none", "dense_norm=none", "num_sv=null", "head_dropout=None", "on_zero=nan")
    config = train("D", "sot_tiny", *(text for pair in given for text in ("--set", pair)))
    backbone, head = sort_options(ViTConfig, config.model_options, where="sot_tiny")
    assert (backbone.dense_norm, head.pooling, head.on_zero) == ("none", "none", "nan")
    assert (head.num_sv, head.head_dropout) == (None, None)
    nothing = ("--aa", "none", "--color-jitter", "0", "--set", "clip_grad=none")
    assert train("D", "sot_tiny", *nothing).aa is None


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--model", "sot_tinny"), "unknown image model 'sot_tinny'; did you mean sot_tiny"),
        (("--model", "bert_base"), "bert_base is a text model"),
        ((), "--model is required"),
        (("sot_tiny", "-b", "5"), "need an even batch_size, got 5"),
        (("sot_tiny", "--eval_checkpoint", "W.pth", "--IN_A"), "evaluation is tools/eval_image.py"),
        (("sot_tiny", "--opt-betas", "0.9", "1"), r"opt_betas must be in \[0, 1\), got \(0.9, 1.0"),
        (("sot_tiny", "--scale", "1"), "scale: Tuple should have at least 2 items"),
        (("sot_tiny", "--set", "drop_path_rate=0.3"), "is given by --drop-path"),
        (("sot_tiny", "--loss_add", "--set", "fusion=concat"), "--loss_add is for fusion sum_loss"),
        (("sot_tiny", "--amp", "--dtype", "float64"), "mixed precision needs dtype float32"),
    ],
)
def test_refusals(flags: tuple[str, ...], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        train("DATA", *flags)


def test_flags_without_effect_say_so(capsys) -> None:
    config = train("--local_rank", "0", "DATA", "sot_tiny", "--model-ema", "--num-gpu", "2")
    assert config.data_dir == "DATA"
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(" has no effect")[0] for line in lines] == [
        *("--local-rank", "--model-ema", "--num-gpu")
    ]


def test_a_file_and_flags_over_it(tmp_path) -> None:
    path = tmp_path / "run.yaml"
    text = "model: sot_small\nlr: 0.25\naa: none\ncolor_jitter: 0.0\n"
    text += "model_options:\n  depth: 3\n  embed_dim: 12\n"
    path.write_text(text, encoding="utf-8")
    config = train("--config", str(path), "DATA", "--set", "depth=5", "--seed", "3")
    assert (config.model, config.lr, config.seed, config.aa) == ("sot_small", 0.25, 3, None)
    assert config.model_options == {"depth": "5", "embed_dim": 12}


@pytest.mark.parametrize("path", IMAGE_CONFIGS, ids=lambda path: path.stem)
def test_shipped_files_are_read(path: Path) -> None:
    config = train("--config", str(path))
    assert config.model == path.stem
    header = path.read_text(encoding="utf-8").split("\n")[:8]
    said = "\n".join(line for line in header if line.startswith("#"))
    for word in ("Published:", "Ours:", "Command:", f"--config configs/imagenet/{path.name}"):
        assert word in said, word
    assert rates(config).total_epochs == 310
