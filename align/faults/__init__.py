"""One vocabulary of faults: the catalogue's rows as data, and the changes of layers they name.

The certificate plants every row in its scenes (`align/certify/planting.py`); the cases plant some
in every run, under the same names (`align/cases/planted_controls.py`).
"""
