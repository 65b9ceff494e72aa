"""Texts of crashes, after the captured logs of a real 0.5.23 server."""

_TRACEBACK = """Scheduler hit an exception: Traceback (most recent call last):
  File "/usr/local/lib/python3.12/dist-packages/sglang/srt/managers/scheduler.py", line 6368, in run_scheduler_process
    scheduler.run_event_loop()
  File "/usr/local/lib/python3.12/dist-packages/sglang/srt/managers/scheduler.py", line 4704, in run_batch
    batch_result = self.model_worker.forward_batch_generation(
                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
{error}
"""
_ERRORS = {
    "exception": "RuntimeError: stand-in: this exception was ordered",
    "oom": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. "
    "GPU 0 has a total capacity of 79.11 GiB of which 1.00 GiB is free.",
    "cuda-error": "torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
}
STACK = """Process {pid}: sglang::scheduler
Python v3.12.3 (/usr/bin/python3.12)

Thread {pid} (idle): "MainThread"
    forward (model_runner.py:1860)
    run_batch (scheduler.py:4704)
    event_loop_overlap (scheduler.py:2109)
    run_scheduler_process (scheduler.py:6368)
"""


def scheduler_exception(kind: str, text: object = None) -> str:
    """The log text of an exception in a scheduler; `text` replaces the last line's message."""
    error = _ERRORS[kind]
    if text is not None:
        error = f"{error.partition(':')[0]}: {text}"
    return _TRACEBACK.format(error=error)


def start_exception(error: str) -> str:
    """The log text of a start that fails with an exception."""
    return _TRACEBACK.format(error=error)
