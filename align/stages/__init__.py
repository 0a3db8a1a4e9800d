"""The stages of a comparison, one StepResult each."""
