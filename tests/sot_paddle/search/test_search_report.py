"""The file with the best options of a search is one of its training command."""

from __future__ import annotations

import optuna

from sot_paddle.command_line import parse
from sot_paddle.search.search_report import BEST, write_best
from sot_paddle.search.space import SearchSpace
from sot_paddle.train.image_flags import TRAINING


def test_the_best_options_of_images_are_read_by_their_command(tmp_path):
    """An option of the model is drawn by its name, as with --set, and stands apart in a file."""
    drawn = {"lr": 0.01, "head_dropout": 0.25, "normalization": "none"}
    parameters = {name: {"kind": "choice", "values": [value]} for name, value in drawn.items()}
    study = optuna.create_study()
    choices = {name: optuna.distributions.CategoricalDistribution([drawn[name]]) for name in drawn}
    study.add_trial(optuna.trial.create_trial(params=drawn, distributions=choices, value=0.5))
    write_best(study, SearchSpace("train_image", "loss", "minimize", parameters), tmp_path)
    config = parse(TRAINING, ["digits", "sot_tiny", "--config", str(tmp_path / BEST)])
    assert config.lr == 0.01
    assert config.model_options == {"head_dropout": 0.25, "normalization": "none"}
