"""The sensitivity certificate: planted faults that the suite must find, place and explain.

`scene.py` and `source_edit.py` say what a scene and a fault are, `scenes/` holds passing pairs of
real models, `catalogue.py` plants the rows of `align/faults` in them, `running.py` runs them in
worker processes. `python -m align --certify` is the command.
"""
