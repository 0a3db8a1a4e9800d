"""Both sides apart: each framework dumps its run where it is installed; the files are compared.

A dump is a folder of safetensors and JSON. Writing one needs one framework, comparing two needs
none. No pickle is ever read.
"""
