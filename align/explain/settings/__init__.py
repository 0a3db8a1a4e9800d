"""Causes in optimizers and schedules: settings exchanged, formulas and curves edited."""
