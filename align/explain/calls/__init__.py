"""Causes by experiment: edit one wrong layer and see whether it agrees.

`align.pair.bench` runs the layer again. Candidate edits: `layer_edits` (options, weights, inputs),
`call_edits` (rows of data, their values in `call_values`), `number_edits` (one fitted number),
`structure_edits` (the layers inside). `search` tries them, `gradient_search` those of a backward
pass.
"""
