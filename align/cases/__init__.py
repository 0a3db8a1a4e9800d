"""This project's own cases."""
