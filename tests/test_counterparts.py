"""Every command of docs/counterparts.md parses, and every command of a source has one there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from sot_paddle.command_line import parse
from sot_paddle.config import load_yaml
from sot_paddle.explain import command as visualizing
from sot_paddle.search import glue_all, trainings
from sot_paddle.train import commands, preparation_command

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "counterparts.md").read_text(encoding="utf-8")
SECTIONS = {part.split("\n")[0]: part for part in re.split(r"^## ", PAGE, flags=re.M)[1:]}
TEXT, IMAGES = SECTIONS["SoT, text release"], SECTIONS["SoT, image release"]
ROWS = re.findall(r"^\| `(python [^`]+)` \| `([^`]+)` \|$", SECTIONS["BERTVision"], re.M)
ALL = re.findall(r"`(python (?:tools/|-m paddle)[^`]+)` \|$", PAGE, re.M)
COMMANDS = {name: commands.part(name, 0) for name in commands.COMMANDS} | {
    "prepare_pretraining": preparation_command.PrepareConfig,
    "train_tokenizer": preparation_command.TokenizerConfig,
}
_OF_A_RUN = [
    *("--task_name", "RTE", "--data_dir", "x", "--model_name_or_path", "x", "--output_dir", "x")
]
CONFIGS = sorted((ROOT / "configs" / "adapter").glob("*.yaml"))


def parsed(command: str):
    """The options that a command of ours means."""
    launch = r"^python -m paddle\.distributed\.launch --nproc_per_node \d+ (?=tools/)"
    python, tool, *words = shlex.split(re.sub(launch, "python ", command))
    assert python == "python"
    name = Path(tool).stem
    assert (ROOT / "tools").is_dir()
    if name == "search":  # it hands what follows -- to the command that its space names
        space = load_yaml(ROOT / words[words.index("--space") + 1])
        name, words = space["command"], words[words.index("--") + 1 :]
    else:
        assert (ROOT / tool).is_file(), tool
    if name == "glue_all":
        own, training = trainings.split_arguments(words)
        assert parse(COMMANDS["train_glue"], [*_OF_A_RUN, *training])
        return glue_all.parser().parse_args(own)
    if name == "visualize":
        return visualizing.parser().parse_args(words)
    return parse(COMMANDS[name], words)


@pytest.fixture(autouse=True)
def _root(monkeypatch) -> None:
    monkeypatch.chdir(ROOT)


def flags(source: str) -> dict[str, str]:
    return dict(re.findall(r"--([\w-]+) (\S+)", source))


@pytest.mark.parametrize(("source", "ours"), ROWS, ids=[row[0][7:60] for row in ROWS])
def test_a_counterpart_parses_and_trains_as_the_source_says(source: str, ours: str) -> None:
    given = flags(source)
    config, *others = [parsed(part) for part in ours.split(" && ")]
    if "max-seq-length" in given:
        assert config.max_seq_length == int(given["max-seq-length"])
        assert all(one.length == int(given["max-seq-length"]) for one in others)
    if "lr" in given:
        assert config.learning_rate == float(given["lr"])
    if "batch-size" in given and "hypersearch" not in source:
        assert config.per_gpu_train_batch_size == int(given["batch-size"])
    if "checkpoint" in given:
        size = "large" if given["checkpoint"] == "bert-large-uncased" else "base"
        assert size in config.model_name_or_path
    assert config.weight_decay == float(given.get("l2", 0.01))
    assert config.num_train_epochs == 1
    assert (config.correct_bias, config.warmup_proportion, config.adam_epsilon) == (
        *(False, 0.1),
        1e-6,
    )
    assert (config.max_grad_norm, config.seed) == (0, 1)


def test_every_command_of_the_source_has_a_counterpart(shared_file) -> None:
    text = shared_file("sources/002_be7d81e551831fdd.txt").read_text(encoding="utf-8")
    commands = [line.strip() for line in re.findall(r"^`?(python [^`\n]+)`?\s*$", text, re.M)]
    assert len(commands) == 61
    assert {source for source, _ in ROWS} == set(commands)


@pytest.mark.parametrize("command", ALL, ids=lambda command: command[-60:])
def test_every_command_here_parses(command: str) -> None:
    for part in command.split(" && "):
        assert parsed(part)


def test_no_row_is_missed() -> None:
    assert len(ALL) == len(re.findall(r"^\|.*tools/", PAGE, re.M)) > 100


def published(shared_file, name: str) -> set[str]:
    """The commands of a source's blocks of code, continued lines joined, without comments."""
    text = shared_file(f"sources/{name}").read_text(encoding="utf-8")
    blocks = re.findall(r"^```(?:bash|sh)?\n(.*?)^```", text, re.S | re.M)
    joined = re.sub(r"\\\n\s*", " ", "\n".join(blocks))
    lines = (" ".join(line.split("#")[0].split()) for line in joined.splitlines())
    return {line for line in lines if line.startswith(("python ", "sh "))}


@pytest.mark.parametrize(
    ("name", "section", "others"),
    [
        (
            "000_e654d16788e9d5b3.txt",
            TEXT,
            {"python download_glue_data.py --data_dir glue_data --tasks all"},
        ),
        ("001_231a7db758eb00d0.txt", IMAGES, {"python setup.py install"}),
    ],
)
def test_every_command_of_the_releases_has_a_counterpart(
    name, section, others, shared_file
) -> None:
    commands = published(shared_file, name)
    assert len(commands) > len(others)
    assert set(re.findall(r"^\| `((?:python|sh) [^`]+)` \|", section, re.M)) == commands - others


def test_the_command_of_the_text_release_is_taken_as_it_is() -> None:
    source, ours = re.findall(r"^\| `(python run_glue[^`]+)` \| `([^`]+)` \|$", TEXT, re.M)[0]
    theirs = source.replace("$GLUE_DIR", "glue_data").replace("$TASK_NAME", "RTE")
    theirs = theirs.replace("run_glue.py", "tools/train_glue.py").replace("OUTPUT/", "output/rte")
    assert ours == theirs
    assert parsed(ours).head_options["q_dim"] == 56


def test_the_tables_for_four_gpus() -> None:
    row = r"^\| (\w+) \| (\S+), (\d+), (\d+) \| (\d+), (\d+), (\S+) \| `([^`]+)` \|$"
    rows = re.findall(row, TEXT, re.M)
    assert [task for task, *_ in rows] == ["MNLI", "QNLI", "RTE", "CoLA"]
    for task, rate, batch, epochs, q, k, dropout, command in rows:
        config, options = parsed(command), parsed(command).head_options
        assert (config.task_name, config.num_train_epochs) == (task, int(epochs))
        assert (config.learning_rate, config.per_gpu_train_batch_size) == (float(rate), int(batch))
        assert config.gradient_accumulation_steps == 1
        expected = {"q_dim": int(q), "k_dim": int(k), "head_dropout": float(dropout)}
        assert {name: options[name] for name in expected} == expected


def test_the_rows_for_text_are_there_for_every_task() -> None:
    commands = [command for command in ALL if "configs/glue/cola_" in command]
    assert len(commands) == 18
    for command in commands:
        for task in ("CoLA", "RTE", "MNLI", "QNLI"):
            config = parsed(command.replace("/cola_", f"/{task.lower()}_"))
            assert config.task_name == task


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_config_says_what_it_is_and_parses(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    command = re.search(r"^# Command: (python tools/\S+ --config (\S+))$", text, re.M)
    assert command is not None
    assert command[2] == f"configs/adapter/{path.name}"
    config = parsed(command[1])
    assert re.search(r"^# Published: .+\.$", text, re.M)
    assert path.stem in config.output_dir
    task = config.task_name.lower().replace("-", "")
    assert path.stem.startswith(f"{task}_")


def test_there_is_a_config_for_every_column_of_the_tables() -> None:
    tasks = ("mnli", "qnli", "qqp", "rte", "sst2", "mrpc", "cola", "stsb")
    kinds = {f"{t}_{k}_{s}" for t in tasks for k in ("bert", "adapter") for s in ("base", "large")}
    assert {path.stem for path in CONFIGS} == kinds | {"squad_bert_base", "squad_adapter_base"}


DOCUMENTS = SECTIONS["BERT4Doc"]


def test_the_commands_of_bert4doc(shared_file) -> None:
    commands = published(shared_file, "003_d1afbf938cff3edd.txt")
    fine_tuning = {command for command in commands if "run_discriminative" in command}
    assert len(fine_tuning) == 2
    rows = dict(re.findall(r"^\| `(python run_[^`]+)` \| `([^`]+)` \|$", DOCUMENTS, re.M))
    assert set(rows) == fine_tuning
    for source, ours in rows.items():
        config, given = parsed(ours), flags(source.replace('="', " ").replace('"', ""))
        assert config.task_name == given["task_name"]
        assert config.model_name_or_path == given["model_name_or_path"]
        assert (config.layers, config.trunc_medium) == ((11,), int(given["trunc_medium"]))
        assert config.layer_learning_rate == (float(given["layer_learning_rate"]),)
        assert config.layer_learning_rate_decay == float(given["layer_learning_rate_decay"])
        assert config.discr
        assert config.do_lower_case
        assert config.max_seq_length == 512
        assert parsed(f"{ours} --paddle_compat").optimizer == "adamw"


def test_the_further_pre_training_of_bert4doc(shared_file) -> None:
    commands = published(shared_file, "003_d1afbf938cff3edd.txt")
    rows = dict(re.findall(r"^\| `(python main[^`]+)` \| `([^`]+)` \|$", DOCUMENTS, re.M))
    assert set(rows) == {command for command in commands if command.startswith("python main")}
    for source, ours in rows.items():
        prepared, config = (parsed(part) for part in ours.split(" && "))
        given = flags(source)
        assert prepared.form == "instances"
        assert prepared.output_dir == config.data_dir
        assert config.max_steps == int(given["max_steps"])
        assert config.model_name_or_path == given["model_name_or_path"]


def test_the_commands_of_convolutions_and_self_attention(shared_file) -> None:
    text = shared_file("sources/004_83a1715afa63513a.txt").read_text(encoding="utf-8")
    blocks = [
        " ".join(b.replace("\\", " ").split()) for b in re.findall(r"<pre>(.*?)</pre>", text, re.S)
    ]
    section = SECTIONS["Convolutions and self-attention"]
    rows = re.findall(r"^\| `([^`]+)`[^|]* \| `([^`]+)` \|$", section, re.M)
    pretraining = [ours for source, ours in rows if source.startswith("run_language")]
    sources = [block for block in blocks if "run_language_modeling" in block]
    assert len(pretraining) == len(sources) == 2
    for source, ours in zip(sources, pretraining, strict=True):
        given = {k: v.strip('"') for k, v in re.findall(r"--(\w+)=(\S+)", source)}
        config = parsed(ours.split(" && ")[-1])
        assert config.per_gpu_train_batch_size == int(given["per_device_train_batch_size"])
        for name in ("save_steps", "block_size", "max_steps", "warmup_steps"):
            assert getattr(config, name) == int(given[name])
        for name in ("learning_rate", "adam_epsilon", "weight_decay"):
            assert getattr(config, name) == float(given[name])
    options = {source.split("=")[0] for source, _ in rows if source.startswith("--")}
    assert options == {word.split("=")[0] for word in blocks if word.startswith("--")}
    (source,) = [block for block in blocks if "run_glue" in block]
    (ours,) = [parsed(ours) for source, ours in rows if source.startswith("run_glue")]
    assert ours.hyperparams == "electra_base"
    assert f"--per_device_train_batch_size {ours.per_device_train_batch_size} " in source
