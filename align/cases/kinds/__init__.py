"""The kinds of case: plain records, no logic."""
