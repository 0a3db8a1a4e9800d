"""Causes by experiment: undo one slip in a wrong layer and see whether the difference vanishes.

`trials` runs the layer again on the reference's inputs, `calls` watches and replaces single calls
of the framework in it, the modules of candidates say which slips there are, `search` tries them.
"""
