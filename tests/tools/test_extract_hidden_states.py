from tests.tools import tool_runs


def test_a_refusal_is_one_line(tmp_path):
    flags = ("--task_name", "RTE", "--model_name_or_path", tmp_path, "--output_dir", tmp_path)
    line = tool_runs.refused("extract_hidden_states", *flags)
    assert line.startswith("extract_hidden_states: RTE needs --data_dir")
