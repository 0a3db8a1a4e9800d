from tests.tools import tool_runs


def test_a_refusal_is_one_line(tmp_path):
    line = tool_runs.refused("layer_map", tmp_path, "--out", tmp_path / "map.png")
    assert line.startswith(f"layer_map: cannot read {tmp_path / 'metrics.json'}")
