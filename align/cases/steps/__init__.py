"""The steps of whole models, a file each: ``run(case, dtype, context) -> StepResult``."""
