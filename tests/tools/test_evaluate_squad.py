from tests.tools import tool_runs


def test_a_refusal_is_one_line(tmp_path):
    line = tool_runs.refused("evaluate_squad", tmp_path / "dev.json", tmp_path / "given.json")
    assert line == f"evaluate_squad: cannot read {tmp_path / 'dev.json'}: No such file or directory"
