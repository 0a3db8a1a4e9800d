"""The sensitivity certificate: planted faults that the suite must find, place and explain.

`scene.py` and `source_edit.py` say what a scene and an edit are, `scenes/` holds passing pairs of
real models, `planting.py` plants the faults of `align/faults` in them, `running.py` runs them in
worker processes. `python -m align --certify` is the command.
"""
