"""Causes by experiment: edit one wrong layer and see whether it agrees.

`trials` runs the layer again on the reference's inputs, `calls` watches and replaces single calls
of the framework in it. Candidate edits: `layer_edits` (options, weights, inputs), `call_edits`
(rows of data, their values in `call_values`), `number_edits` (one fitted number),
`structure_edits` (the layers inside). `search` tries them.
"""
