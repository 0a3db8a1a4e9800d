"""SQuAD 2.0: the official file, features of long contexts, answers from scores, official scores."""
