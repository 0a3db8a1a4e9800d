from tests.tools import tool_runs


def test_a_refusal_is_one_line(tmp_path):
    flags = ("--task_name", "RTE", "--states", tmp_path, "--output_dir", tmp_path / "out")
    line = tool_runs.refused("train_adapter", *flags, "--do_train")
    assert line.startswith(f"train_adapter: {tmp_path / 'rte_labels.h5'} is not there: make it")
