"""Both frameworks from outside, the same functions for each: NumPy in and out."""
