"""Causes by experiment: edit one wrong layer and see whether it agrees.

`align.pair.bench` runs the layer again. Candidate edits: `layer_edits` (options, weights, inputs),
`value_rows` and `place_rows` (of a call, tables of data; `call_values` what they try),
`number_edits` (one fitted number). `search` tries them, and those of a backward pass.
"""
