"""What is compared of the classification of whole texts."""
