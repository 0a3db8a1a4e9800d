from tests.tools import tool_runs


def test_a_refusal_is_one_line(tmp_path):
    flags = ("--model_name_or_path", tmp_path, "--output_dir", tmp_path / "out", "--do_train")
    line = tool_runs.refused("train_squad", *flags)
    assert line.startswith(f"train_squad: {tmp_path} holds neither config.json nor")
