"""Kinds of tasks: what is trained on, its loss, its scores and what is predicted."""
