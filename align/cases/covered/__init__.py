"""What of the product the suite runs: measured by coverage.py, judged against a list of reasons."""
