"""Options of the command on SQuAD."""

import pytest

from sot_paddle.tasks.state_options import SquadTrainConfig


@pytest.mark.parametrize("given", [{"data_dir": "d"}, {"rows": "all"}])
def test_what_is_of_a_glue_task_means_nothing_for_squad(given: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="means nothing for SQuAD: leave it out"):
        SquadTrainConfig(model_name_or_path="m", output_dir="o", do_train=True, **given)
    assert "not taken" in SquadTrainConfig.__dataclass_fields__[next(iter(given))].metadata["help"]
