"""What a case runs on either side."""
