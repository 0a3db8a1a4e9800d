import json
import re
from pathlib import Path

import pytest

from sot_paddle.command_line import parse as parse_command
from sot_paddle.tasks.glue_options import TrainConfig
from sot_paddle.train import document_command
from sot_paddle.train.text_command import COMMAND

ROOT = Path(__file__).resolve().parents[3]
CONFIGS = sorted((ROOT / "configs" / "glue").glob("*.yaml"))
PUBLISHED = {
    "bert_base_mgcrp": {"CoLA": 58.03, "RTE": 69.31, "MNLI": 84.20, "QNLI": 90.78},
    "bert_large_mgcrp": {"CoLA": 61.82, "RTE": 75.09, "MNLI": 86.46, "QNLI": 92.37},
    "bert_base_plain": {"CoLA": 54.82, "RTE": 67.15, "MNLI": 83.47, "QNLI": 90.11},
    "bert_large_plain": {"CoLA": 60.63, "RTE": 73.65, "MNLI": 85.90, "QNLI": 91.82},
    "openai_gpt_mgcrp": {"CoLA": 57.25, "RTE": 65.35, "MNLI": 82.41, "QNLI": 87.13},
    "openai_gpt_plain": {"CoLA": 54.32, "RTE": 63.17, "MNLI": 82.10, "QNLI": 86.36},
    "spanbert_base_mgcrp": {"CoLA": 63.77, "RTE": 77.26, "MNLI": 86.13, "QNLI": 93.31},
    "spanbert_large_mgcrp": {"CoLA": 65.94, "RTE": 79.79, "MNLI": 88.16, "QNLI": 94.49},
    "spanbert_base_plain": {"CoLA": 57.48, "RTE": 73.65, "MNLI": 85.53, "QNLI": 92.71},
    "spanbert_large_plain": {"CoLA": 64.32, "RTE": 78.34, "MNLI": 87.89, "QNLI": 94.22},
    "roberta_base_mgcrp": {"CoLA": 65.28, "RTE": 80.50, "MNLI": 87.90, "QNLI": 93.10},
    "roberta_large_mgcrp": {"CoLA": 70.90, "RTE": 88.10, "MNLI": 90.50, "QNLI": 95.00},
    "roberta_base_plain": {"CoLA": 61.58, "RTE": 77.60, "MNLI": 87.50, "QNLI": 92.70},
    "roberta_large_plain": {"CoLA": 67.98, "RTE": 86.60, "MNLI": 90.20, "QNLI": 94.70},
}
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
MORE_TEXT = """
    --config_name c --tokenizer_name t --cache_dir d --evaluate_during_training
    --per_gpu_eval_batch_size 8 --gradient_accumulation_steps 1 --weight_decay 0.0
    --adam_epsilon 1e-8 --max_grad_norm 1.0 --max_steps -1 --warmup_steps 0
    --logging_steps 50 --save_steps 50 --no_cuda --overwrite_output_dir --overwrite_cache
    --seed 42 --fp16_opt_level O1 --local_rank -1 --server_ip x --server_port 1
"""
SOURCE_COMMAND = SOURCE_TEXT.split()


def parse(flags):
    return parse_command(COMMAND, flags)


def test_the_source_command_is_read_unchanged():
    config = parse(SOURCE_COMMAND)
    assert config.task_name == "RTE"
    assert config.learning_rate == 2e-5
    assert config.do_lower_case
    assert config.eval_all_checkpoints
    assert config.head_options["pooling"] == "mgcrp_qk"
    assert (config.optimizer, config.adam_epsilon, config.weight_decay) == ("hf_adamw", 1e-8, 0.0)
    assert (config.warmup_steps, config.lr_scheduler, config.max_grad_norm) == (0, "linear", 1.0)
    assert (config.seed, config.save_steps, config.padding) == (42, 50, "max_length")


def test_every_flag_of_the_original_is_known():
    more = MORE_TEXT.split()
    assert parse(SOURCE_COMMAND + more).config_name == "c"


def test_own_head_settings_win_over_the_task():
    options = parse([*SOURCE_COMMAND, "--q_dim", "7", "--head_dropout", "0"]).head_options
    assert (options["q_dim"], options["k_dim"], options["head_dropout"]) == (7, 32, 0.0)


@pytest.mark.parametrize("more", [("--pooling", "mgcrp"), ()])
def test_a_power_norm_of_the_name_none_is_no_default(more):
    """It is the identity; without an answer it was the pooling's default, svpn."""
    given = [("--normalization", "none"), ("--set", "normalization=none")]
    for words in given:
        assert parse([*SOURCE_COMMAND, *more, *words]).head_options["normalization"] == "none"
    assert parse([*SOURCE_COMMAND, "--normalization", "null"]).head_options["normalization"] is None


def test_a_pooling_of_the_name_none_is_no_default():
    options = parse([*SOURCE_COMMAND, "--pooling", "none"]).head_options
    assert options["pooling"] == "none"


def test_plain_head():
    for given, width in (([], 56), (["--q_dim", "9"], 9)):
        command = [*SOURCE_COMMAND, "--pooling", "gcp_text", *given]
        assert parse(command).head_options["q_dim"] == width
    options = parse([*SOURCE_COMMAND, "--head", "plain"]).head_options
    assert options["pooling"] == "pooler"
    assert "q_dim" not in options


@pytest.mark.parametrize(
    ("more", "unused"),
    [
        ("--head plain --q_dim 7 --wr_dim 9", ["q_dim", "wr_dim"]),
        ("--pooling gcp --wr_dim 9 --head_num_heads 3", ["wr_dim"]),
        ("--pooling gcp_text --q_dim 7 --k_dim 3", ["k_dim"]),
        ("--fusion class_token --q_dim 7", ["q_dim"]),
        ("--q_dim 7 --k_dim 3", []),
        ("--pooling mgcrp --head_num_heads 3 --wr_dim 9", []),
    ],
)
def test_sizes_that_the_head_does_not_have(more, unused):
    assert parse([*SOURCE_COMMAND, *more.split()]).unused_sizes == unused


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--set", "learning_rate=3e-5"], "given twice"),
        (["--set", "seed"], "needs NAME=VALUE"),
        (["--set", "sead=1"], "did you mean seed"),
        (["--seed", "x"], "seed must be a whole number, got 'x'"),
        (["--seeds", "1,1"], "seeds must differ"),
        (["--head", "mgcpr"], "head must be one of mgcrp, plain"),
        (["--max_steps", "0"], "max_steps must be positive"),
        (["--fp16", "--bf16"], "exclude each other"),
        (["--padding", "longest"], "add mask_padding"),
        (["--task_name", "RTTE"], "RTE"),
        (["--regression"], "task_name own only"),
        (["--set", "do_eval=yes"], "true or false"),
        (["--early_stopping_patience", "2", "--set", "do_train=true"], "needs do_eval"),
    ],
)
def test_wrong_options_are_refused(flags, said):
    source = [flag for flag in SOURCE_COMMAND if flag not in ("--do_train", "--do_eval")]
    with pytest.raises(ValueError, match=said):
        parse(source + flags)


def test_required_options():
    with pytest.raises(ValueError, match="task_name is required"):
        parse(["--do_train"])


def test_unknown_flags_and_abbreviations_are_one_line(capsys):
    with pytest.raises(SystemExit) as end:
        parse([*SOURCE_COMMAND, "--learn", "1"])
    assert end.value.code == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "--learn" in err


def test_yaml_set_and_flags(tmp_path):
    path = ROOT / "configs" / "glue" / "rte_bert_base_mgcrp.yaml"
    config = parse(["--config", str(path), "--set", "learning_rate=3e-5", "--seed", "7"])
    assert (config.learning_rate, config.seed, config.q_dim) == (3e-5, 7, 56)


def test_the_home_folder_of_a_file_or_set_is_no_folder_of_that_name(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    path = tmp_path / "options.yaml"
    path.write_text("output_dir: ~/runs/rte\nseed: 3\n", encoding="utf-8")
    given = [*SOURCE_COMMAND[: SOURCE_COMMAND.index("--output_dir")], "--set", "cache_dir=~/c"]
    config = parse([*given, "--config", str(path)])
    assert (config.output_dir, config.cache_dir) == (f"{tmp_path}/runs/rte", f"{tmp_path}/c")


def test_yaml_is_strict(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("task_name: RTE\nlearning_rate: 1e-5\n", encoding="utf-8")
    with pytest.raises(ValueError, match="write 1e-05 with a decimal point|YAML reads 1e-5"):
        parse(["--config", str(path)])
    path.write_text("task_name: RTE\nlerning_rate: 1.0e-5\n", encoding="utf-8")
    with pytest.raises(ValueError, match="did you mean learning_rate"):
        parse(["--config", str(path)])
    path.write_text("task_name: RTE\nseed: '3'\n", encoding="utf-8")
    with pytest.raises(ValueError, match="seed"):
        parse(["--config", str(path)])


def test_only_what_a_file_says_is_told_of_the_file(tmp_path):
    """The flag of the second line is wrong, not the file."""
    known = (ROOT / "configs" / "glue" / "rte_bert_base_mgcrp.yaml").read_text(encoding="utf-8")
    path = tmp_path / "a.yaml"
    path.write_text(re.sub("^seed: .*$", "seed: -3", known, flags=re.M), encoding="utf-8")
    with pytest.raises(ValueError, match=f"^{path}: seed must be at least 0, got -3$"):
        parse(["--config", str(path), "--save_steps", "5"])
    with pytest.raises(ValueError, match="^seed must be at least 0, got -4$"):
        parse(["--config", str(path), "--seed", "-4"])
    with pytest.raises(ValueError, match="^seed must be at least 0, got -5$"):
        parse(["--config", str(path), "--set", "seed=-5"])


def test_a_file_of_json_gives_the_same_options(tmp_path):
    path = tmp_path / "run.json"
    given = {"task_name": "IMDB", "data_dir": "d", "model_name_or_path": "m", "output_dir": "o"}
    rates = {"discr": True, "layers": [10, 11], "layer_learning_rate": [2e-5] * 12}
    path.write_text(json.dumps({**given, **rates, "learning_rate": 5e-5}), encoding="utf-8")
    config = parse_command(document_command.COMMAND, ["--config", str(path)])
    assert (config.layers, config.layer_learning_rate) == ((10, 11), (2e-5,) * 12)
    assert config.learning_rate == 5e-5
    for text, said in (
        ('{"task_name": "IMDB",', "not JSON"),
        ('{"learning_rate": NaN}', "not JSON"),
        ('{"seed": 1, "seed": 2}', "seed"),
        ("[1]", "expected a JSON object"),
        ('{"lerning_rate": 1}', "did you mean learning_rate"),
    ):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ValueError, match=said) as refused:
            parse_command(document_command.COMMAND, ["--config", str(path)])
        assert "\n" not in str(refused.value)


def test_there_is_one_config_for_each_published_number():
    names = {f"{task.lower()}_{model}" for model, tasks in PUBLISHED.items() for task in tasks}
    assert {path.stem for path in CONFIGS} == names


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_config(path):
    config = parse(["--config", str(path)])
    text = path.read_text(encoding="utf-8")
    task, model = path.stem.split("_", 1)
    name, head = model.rsplit("_", 1)
    assert config.task_name.lower() == task
    assert config.head == head
    assert (config.model_type, config.model_name_or_path) == CHECKPOINTS[name]
    assert config.do_lower_case == (config.model_type == "bert")
    assert f"Published: {PUBLISHED[model][config.task_name]:.2f} " in text
    assert f"configs/glue/{path.name}" in text
    assert ("inferred" in text) == (model != "bert_base_mgcrp")
    assert config.per_gpu_train_batch_size * config.gradient_accumulation_steps == 64
    assert config.learning_rate == (3e-5 if task == "qnli" else 2e-5)
    assert config.num_train_epochs == 10.0
    from_table = TrainConfig(task_name=task, data_dir="d", model_name_or_path="m", output_dir="o")
    if head == "mgcrp":
        assert config.head_options == from_table.head_options


def test_a_share_of_the_steps_or_their_number():
    with pytest.raises(ValueError, match="warmup_proportion and warmup_steps exclude each other"):
        parse([*SOURCE_COMMAND, "--warmup_proportion", "0.1", "--warmup_steps", "3"])
    assert parse([*SOURCE_COMMAND, "--warmup_proportion", "0.1"]).warmup_proportion == 0.1


def test_only_one_optimizer_can_leave_the_bias_uncorrected():
    assert parse([*SOURCE_COMMAND, "--set", "correct_bias=false"]).correct_bias is False
    with pytest.raises(ValueError, match="adamw always corrects the bias"):
        parse([*SOURCE_COMMAND, "--set", "correct_bias=false", "--optimizer", "adamw"])
