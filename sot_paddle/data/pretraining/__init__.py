"""Text for pre-training, of any size: tokenized, paired, shuffled and masked from the disk."""
