"""This project's models as pairs: rows of data, run by the steps and controls of any pair."""
