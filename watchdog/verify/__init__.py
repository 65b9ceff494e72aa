"""The checks of a person after a deployment, once: what is gathered (`gather`), and what is concluded from it (pure).

API, journal and memory side by side, and what they rest on: unit, processes, GPUs, settings of the host (docs/commands.md).
"""
