"""Native operators for the CPU: one C++ file and one Python file each; `build` compiles them.

The Python file decides for each call: the native operator for what it takes, and the framework's
operators for everything else (GPU, other precisions, automatic mixed precision, graphs that are
traced or exported, no compiler, ``SOT_PADDLE_NATIVE=0``).
"""
