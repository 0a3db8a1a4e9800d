"""The file with the best options of a search is one of its training command."""

from __future__ import annotations

import optuna

from sot_paddle.command_line import parse
from sot_paddle.search.search_report import BEST, write_best
from sot_paddle.search.space import SearchSpace
from sot_paddle.train.document_command import COMMAND
from sot_paddle.train.image_flags import TRAINING


def write(folder, command: str, drawn: dict) -> str:
    """Write the file of a search whose one trial drew these options; returns its path."""
    parameters = {name: {"kind": "choice", "values": [value]} for name, value in drawn.items()}
    study = optuna.create_study()
    choices = {name: optuna.distributions.CategoricalDistribution([drawn[name]]) for name in drawn}
    study.add_trial(optuna.trial.create_trial(params=drawn, distributions=choices, value=0.5))
    write_best(study, SearchSpace(command, "loss", "minimize", parameters), folder)
    return str(folder / BEST)


def test_the_best_options_of_images_are_read_by_their_command(tmp_path):
    """An option of the model is drawn by its name, as with --set, and stands apart in a file."""
    drawn = {"lr": 0.01, "head_dropout": 0.25, "normalization": "none", "depths": "2,2,2,2"}
    drawn |= {"opt_betas": "0.8,0.99"}
    path = write(tmp_path, "train_image", drawn)
    config = parse(TRAINING, ["digits", "swin_tiny", "--config", path])
    assert (config.lr, config.opt_betas) == (0.01, (0.8, 0.99))
    options = {"head_dropout": 0.25, "normalization": "none", "depths": [2, 2, 2, 2]}
    assert config.model_options == options


def test_the_best_lists_of_text_are_read_by_their_command(tmp_path):
    """A list is drawn as text with commas, which is what --set takes."""
    drawn = {"layers": "10,11", "layer_learning_rate": 2e-5, "seeds": 3}
    path = write(tmp_path, "train_text", drawn)
    given = ["--task_name", "IMDB", "--data_dir", "d", "--model_name_or_path", "m"]
    config = parse(COMMAND, [*given, "--output_dir", "o", "--discr", "--config", path])
    assert (config.layers, config.layer_learning_rate) == ((10, 11), (2e-5,))
    assert config.seeds == (3,)
