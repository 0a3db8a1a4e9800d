"""`align.compare`, spec, dump and compare: a whole comparison from question to verdict."""
