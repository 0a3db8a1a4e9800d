"""The steps of the suite, one file each; each has ``run(case, dtype, context) -> StepResult``."""
