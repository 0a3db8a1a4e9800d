"""Options of the commands on hidden states: which rows, which encoder, how they are trained on."""

from __future__ import annotations

from sot_paddle.config import SPANS
from sot_paddle.data.glue_tasks import get_task
from sot_paddle.data.squad import NULL_SCORES, DecodingOptions
from sot_paddle.data.stored.layout import DTYPES, LENGTHS, ROWS
from sot_paddle.options import changeable, option, part_of, record
from sot_paddle.tasks.text_options import CheckpointOptions, TextRunOptions, TunedOptions

SQUAD = "SQuAD"
LIVE = "live"


@record
class StateRows(CheckpointOptions):
    """Which rows, and which language model makes their hidden states."""

    task_name: str = option("", f"a GLUE task (any case), or {SQUAD}")
    data_dir: str = changeable("", "folder of the GLUE task's files")
    train_file: str = changeable("", f"{SQUAD}: training questions, in the official format")
    predict_file: str = changeable("", f"{SQUAD}: development questions, in the official format")
    max_seq_length: int | None = option(None, f"of a row, else the task's; {SQUAD} 384", low=8)
    doc_stride: int = option(128, f"{SQUAD}: what windows of a context share, in tokens", low=0)
    published_labels: bool = option(False, f"{SQUAD}: the original's slip at a window's end")
    rows: str = option("original", "original (CoLA, MSR as published) or all", choices=ROWS)

    def __post_init__(self) -> None:
        self.require("task_name")
        squad = self.task_name.lower() in ("squad", "squad2", "squadv2", "squad2.0")
        name = SQUAD if squad else get_task(self.task_name).title
        object.__setattr__(self, "task_name", name)
        if squad and self.data_dir:
            raise ValueError(f"--data_dir is of GLUE: {SQUAD} takes --train_file, --predict_file")
        super().__post_init__()

    @property
    def squad(self) -> bool:
        """Whether it is question answering."""
        return self.task_name == SQUAD

    @property
    def length(self) -> int:
        """Tokens of a row."""
        default = 384 if self.squad else LENGTHS.get(self.task_name.lower(), 128)
        return self.max_seq_length or default


@record
class ExtractConfig(StateRows):
    r"""Store the hidden states of every layer and position of a frozen encoder in HDF5.

    The layout is the original's. It says first how much disk each split needs, and refuses when
    that is not there; after a stop the same command makes the splits that are not finished.

    example:
      python tools/extract_hidden_states.py --task_name SQuAD --train_file train-v2.0.json \
          --predict_file dev-v2.0.json --model_name_or_path CHECKPOINT --dtype float16 \
          --output_dir states/squad
    """

    program = "extract_hidden_states.py"
    no_effect = {"--embed-batch-size N": "rows are stored one by one"}

    splits: str = option("", "splits with commas between [train and the development splits]")
    output_dir: str = option("", "folder of the files; a split that is there is left as it is")
    dtype: str = option("float32", "float32 (published) or float16 (half the disk)", choices=DTYPES)
    batch_size: int = option(8, "of a forward pass, in rows", low=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("model_name_or_path", "output_dir")


@record
class RecipeOptions(StateRows, TextRunOptions):
    """The published recipe (C.4) where it is not GLUE training's, and how spans are chosen."""

    do_predict: bool = changeable(False, "GLUE test files, or answers to --predict_file")
    per_gpu_train_batch_size: int = 16
    per_gpu_eval_batch_size: int = 16
    learning_rate: float = 1e-5
    weight_decay: float = 0.01
    adam_epsilon: float = 1e-6
    correct_bias: bool = False
    max_grad_norm: float = 0.0
    warmup_proportion: float = 0.1
    num_train_epochs: float = 1.0
    save_steps: int = 500
    save_total_limit: int | None = 2
    seed: int = 1
    n_best_size: int = changeable(20, f"{SQUAD}: starts and ends that are combined", low=1)
    max_answer_length: int = changeable(30, f"{SQUAD}: longest answer, in tokens", low=1)
    null_score_diff_threshold: float = changeable(0.0, f"{SQUAD}: no answer from here on")
    null_score: str = changeable("published", f"{SQUAD}: of the windows", choices=NULL_SCORES)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("output_dir")
        if not (self.do_train or self.do_eval or self.do_predict):
            raise ValueError("nothing to do: give --do_train, --do_eval or --do_predict")

    @property
    def decoding(self) -> DecodingOptions:
        """How answers are chosen."""
        return part_of(
            self,
            DecodingOptions,
            n_best="n_best_size",
            max_tokens="max_answer_length",
            threshold="null_score_diff_threshold",
        )


@record
class StateTrainConfig(RecipeOptions):
    r"""Train the AdapterPooler, or a probe of each layer, on hidden states of a frozen encoder.

    GLUE or SQuAD, from stored states or made while training. Defaults are the published recipe; the
    same command continues a run that was interrupted, bit for bit.

    example:
      python tools/train_adapter.py --task_name RTE --states states/rte --do_train --do_eval \
          --learning_rate 1.21668e-5 --output_dir output/adapter/rte
    more: the page on hidden states in docs/
    """

    program = "train_adapter.py"

    states: str = changeable(LIVE, "live (made while training), or a folder of stored states")
    model: str = option(
        "adapter", "AdapterPooler, or each layer alone", choices=("adapter", "probes")
    )
    adapter_dim: int = option(0, "width of the adapter; 0 (published): as many as tokens", low=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.states == LIVE and not self.model_name_or_path:
            raise ValueError("states live needs --model_name_or_path: the encoder that makes them")


@record
class SquadTrainConfig(TunedOptions, RecipeOptions):
    r"""Fine-tune a language model on SQuAD 2.0: spans over windows of long contexts.

    Writes predictions.json in the official form, and the official scores in metrics.json. The same
    command continues a run that was interrupted, bit for bit.

    example:
      python tools/train_squad.py --model_name_or_path CHECKPOINT --train_file train-v2.0.json \
          --predict_file dev-v2.0.json --do_train --do_eval --do_predict --output_dir output/squad
    """

    program = "train_squad.py"

    task_name: str = option(SQUAD, f"{SQUAD}, nothing else")
    learning_rate: float = 2e-5

    resolved_pooling = SPANS

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.squad:
            raise ValueError(f"task_name must be {SQUAD}, got {self.task_name}: use train_glue.py")
        self.require("model_name_or_path")
