"""The catalogue through other tools, as their manuals say to use them: reprod_log and PaDiff.

`benchmark.py` runs them beside the certificate, each task in a worker process of the tool's own.
They are optional: nothing here is imported unless `tools/bench_align_peers.py` asks for it.
"""
