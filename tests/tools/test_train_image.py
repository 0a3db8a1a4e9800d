from tests.tools import tool_runs


def test_the_digits_are_trained_and_evaluated_without_torch(tmp_path):
    out = tmp_path / "out"
    flags = ["digits", "--config", str(tool_runs.ROOT / "configs" / "digits" / "sot_digits.yaml")]
    flags += ["--output", str(out), "--max-steps", "2", "-b", "16", "--set", "depth=1"]
    flags += ["--set", "token_type=patch", "--set", "patch_size=8"]
    done = tool_runs.run("train_image", *flags, without=("torch",))
    assert done.returncode == 0, done.stderr[-3000:]
    assert "train 1433 images, val 364 images" in done.stderr
    assert (out / "best" / "ema.safetensors").is_file()
    seen = tool_runs.run("eval_image", "digits", "--weights", out, "--workers", "0")
    assert seen.returncode == 0, seen.stderr[-3000:]
    assert "364 images in" in seen.stdout
    assert len([line for line in seen.stdout.splitlines() if line[:1].isdigit()]) == 10
