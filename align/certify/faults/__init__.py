"""The catalogue's faults, a file for each area."""
