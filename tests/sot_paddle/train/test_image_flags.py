"""The command lines: the originals' forms, spellings, refusals."""

from __future__ import annotations

from pathlib import Path

import pytest

from sot_paddle.command_line import parse
from sot_paddle.tasks.image_options import ImageEvalConfig, ImageTrainConfig
from sot_paddle.train.image_command import rates
from sot_paddle.train.image_flags import EVALUATION, TRAINING
from sot_paddle.train.schedule import EpochRates

ROOT = Path(__file__).resolve().parents[3]
CONFIGS = sorted((ROOT / "configs").glob("imagenet/*.yaml"))


def train(*flags: str) -> ImageTrainConfig:
    return parse(TRAINING, flags)


def evaluate(*flags: str) -> ImageEvalConfig:
    return parse(EVALUATION, flags)


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
    for more in (("--cpu-precision", "bf16"), ("--exif-orientation",)):
        assert config.identity() != train(*flags.split(), *more).identity()
    measuring = ("--crop-pct", "0.9", "--interpolation", "bilinear", "--on-corrupt", "skip")
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
    --remode const --mixup 0.1 --cutmix 0.2 --mixup-prob 0.3 --mixup-switch-prob 0.4
    --smoothing 0.05 --model-ema --model-ema-decay 0.8 --img-size 64 --num-classes 5 --opt adamw
    --sched cosine --seed 1 -j 3 --output out --resume never --eval-metric loss --color-jitter 0.3
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
        *("D", "sot_tiny", "--set", "embed_dim=48", "--model-option", "depth=2"),
        *("--set", "qkv_bias=true", "--set", "mlp_ratio=2.0", "--set", "seed=7"),
    )
    assert config.seed == 7
    assert config.model_options == {"embed_dim": 48, "depth": 2, "qkv_bias": True, "mlp_ratio": 2.0}
    swin = train("D", "swin_tiny", "--set", "depths=2,2,2,2", "--set", "normalization=none")
    assert swin.model_options == {"depths": (2, 2, 2, 2), "normalization": "none"}


def test_none_is_the_value_of_that_name_of_a_model_and_null_is_no_value() -> None:
    given = ("pooling=none", "dense_norm=none", "num_sv=null", "head_dropout=None", "on_zero=nan")
    config = train("D", "sot_tiny", *(text for pair in given for text in ("--set", pair)))
    options = {"pooling": "none", "dense_norm": "none", "num_sv": None, "head_dropout": None}
    assert config.model_options == {**options, "on_zero": "nan"}
    assert train("D", "sot_tiny", "--aa", "none", "--set", "clip_grad=none").aa is None


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--model", "sot_tinny"), "unknown image model 'sot_tinny'; did you mean sot_tiny"),
        (("--model", "bert_base"), "bert_base is a text model"),
        ((), "--model is required"),
        (("sot_tiny", "-b", "5"), "need an even batch_size, got 5"),
        (("sot_tiny", "--eval_checkpoint", "W.pth", "--IN_A"), "evaluation is tools/eval_image.py"),
        (("sot_tiny", "--opt-betas", "0.9", "1"), r"opt_betas must be in \[0, 1\), got \(0.9, 1.0"),
        (("sot_tiny", "--scale", "1"), "scale must have 2 values, got"),
        (("sot_tiny", "--set", "depth=1", "--model-option", "depth=2"), "depth is given twice"),
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
    text = "model: sot_small\nlr: 0.25\naa: none\nmodel_options:\n  depth: 3\n  embed_dim: 12\n"
    path.write_text(text, encoding="utf-8")
    config = train("--config", str(path), "DATA", "--set", "depth=5", "--seed", "3")
    assert (config.model, config.lr, config.seed, config.aa) == ("sot_small", 0.25, 3, None)
    assert config.model_options == {"depth": 5, "embed_dim": 12}


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_shipped_files_are_read(path: Path) -> None:
    config = train("--config", str(path))
    assert config.model == path.stem
    header = path.read_text(encoding="utf-8").split("\n")[:8]
    said = "\n".join(line for line in header if line.startswith("#"))
    for word in ("Published:", "Ours:", "Command:", f"--config configs/imagenet/{path.name}"):
        assert word in said, word
    assert rates(config).total_epochs == 310


def test_an_evaluation_turns_photographs_as_its_weights_were_trained_unless_it_is_told() -> None:
    flags = ("DATA", "--weights", "W")
    assert evaluate(*flags).exif_orientation is None
    assert evaluate(*flags, "--exif-orientation").exif_orientation is True
    assert evaluate(*flags, "--exif_orientation", "false").exif_orientation is False
    assert evaluate(*flags, "--set", "exif_orientation=false").exif_orientation is False
