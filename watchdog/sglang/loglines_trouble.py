"""Wordings of trouble and of the end, for all versions from 0.4.6 to 0.5.23.

Three tables: lines that SGLang's loggers print (found by their first word), lines that no logger printed (the last line of a
traceback, found by what it says; what the C++ parts and a shell print). A wording counts only at the beginning of a
line's own text, so that a prompt that quotes it within a line has no say. One that is logged with its line breaks
(--log-requests) can still begin a line of the journal, and nothing here tells that line from SGLang's own: so the judges restart
no server for a line while it answers or works on. A forged one can have evidence gathered and the server doubted, or hold a
restart back while it is taken for a drain.
"""

from watchdog.sglang.logrules import Rule, rule
from watchdog.sglang.marks import Mark

_EXCEPTION = (
    rule(Mark.EXCEPTION, r"(?P<text_process>\w{1,60}) hit an exception: ", fatal=True),
    rule(
        Mark.WATCHDOG_FIRED,
        r"(?P<text_name>\w{1,60}) watchdog timeout \(self\.watchdog_timeout=(?P<timeout_s>[\d.]+), self\.soft=False\)",
        fatal=True,
    ),
    rule(
        Mark.WATCHDOG_SOFT,
        r"(?P<text_name>\w{1,60}) watchdog timeout \(self\.watchdog_timeout=(?P<timeout_s>[\d.]+), self\.soft=True\)",
    ),
    rule(Mark.DUMP, r"\w{1,60} debug info:"),
)
_OUT_OF_MEMORY = (
    rule(Mark.RETRACT, r"Decode out of memory happened\. #retracted_reqs: (?P<retracted>\d+)"),
    rule(Mark.OUT_OF_MEMORY, r"(?:Prefill|Decode) out of memory\. Try to lower your batch size\.", fatal=True),
    # "Aborted": its client went away (srt/disaggregation/mooncake/conn.py, 0.5.x)
    rule(Mark.ABORTED, r"(?:Prefill|Decode) transfer failed for request .{0,300}?: Aborted", cause="client"),
    rule(Mark.ABORTED, r"(?:Prefill|Decode) transfer failed for request ", cause="transfer"),
)
_LEAK = (rule(Mark.LEAK_CHECK, r"(?:token_to_kv_pool_allocator|req_to_token_pool|pool) memory leak detected!"),)
_SHUTDOWN = (
    rule(Mark.SHUTDOWN, r"Waiting for connections to close\.", cause="connections"),
    rule(
        Mark.SHUTDOWN,
        r"(?:Shutting down$|Waiting for (?:application shutdown|background tasks to complete)"
        r"|Application shutdown complete\.|Finished server process \[)",
    ),
)

# The first word of the line's text → the rules for it.
LOGGED: dict[str, tuple[Rule, ...]] = {
    "Scheduler": (
        *_EXCEPTION,
        rule(
            Mark.CHILD_DEAD,
            r"Scheduler or DataParallelController (?P<pid>\d+) terminated with (?P<exit_code>-?[1-9]\d*)$",
            fatal=True,
        ),
    ),
    "DetokenizerManager": _EXCEPTION,
    "TokenizerManager": _EXCEPTION,
    "DataParallelController": _EXCEPTION,
    "MultiTokenizerRouter": _EXCEPTION,
    "MultiDetokenizerRouter": _EXCEPTION,
    "Detokenizer": _EXCEPTION,
    "Tokenizer": _EXCEPTION,
    "Health": (
        rule(Mark.HEALTH_DRAINING, r"Health check request received during shutdown\. Returning 503\."),
        rule(
            Mark.HEALTH_FAILED,
            r"Health check failed\. Server couldn't get a response from detokenizer for last (?P<waited_s>\d+) seconds\.",
        ),
    ),
    "Watchdog": (rule(Mark.WATCHDOG_FIRED, r"Watchdog timeout \(self\.watchdog_timeout=(?P<timeout_s>[\d.]+)\)", fatal=True),),
    "Pyspy": (rule(Mark.DUMP, r"Pyspy (?:dump for PID (?P<pid>\d+)|failed )"),),
    "All": (rule(Mark.DUMP, r"All pyspy dump attempts failed for PID (?P<pid>\d+)"),),
    "Subprocess": (
        rule(
            Mark.CHILD_DEAD,
            r"Subprocess (?P<text_name>\S{1,80}) \(pid=(?P<pid>\d+)\) crashed with exit code (?P<exit_code>-?\d+)\.",
            fatal=True,
        ),
    ),
    "Rank": (rule(Mark.CHILD_DEAD, r"Rank (?P<scheduler_rank>\d+) scheduler is dead\.", fatal=True, name="scheduler"),),
    "Exit": (rule(Mark.CHILD_DEAD, r"Exit code: (?P<exit_code>-?\d+)$", fatal=True),),
    # 0.4.6 prints the wait status of any child, also of a short-lived helper: not fatal in itself.
    "Child": (
        rule(
            Mark.CHILD_DEAD,
            r"Child process unexpectedly failed with(?: an)? exit ?code[= ](?P<exit_code>\d+)\.? pid=(?P<pid>\d+)",
        ),
    ),
    "Received": (rule(Mark.SIGQUIT, r"Received sigquit from a child process\.", fatal=True),),
    "SIGQUIT": (rule(Mark.SIGQUIT, r"SIGQUIT received\. ", fatal=True),),
    "SIGTERM": (rule(Mark.SIGTERM, r"SIGTERM received"),),
    "Signal": (
        rule(
            Mark.SIGTERM,
            r"Signal SIGTERM received while (?P<text_while>health check failed|force shutdown flag set)\."
            r"(?: Exiting\.\.\. remaining number of requests: (?P<remaining>\d+))?",
        ),
    ),
    "Gracefully": (rule(Mark.DRAINING, r"Gracefully exiting\.\.\. [Rr]emaining number of requests (?P<remaining>\d+)"),),
    "Sleeping": (rule(Mark.DYING, r"Sleeping (?P<wait_s>\d+) seconds before crash diagnostics", fatal=True),),
    "No": (rule(Mark.DYING, r"No live scheduler processes found; skipping py-spy", fatal=True),),
    "Waiting": (
        rule(Mark.DYING, r"Waiting (?P<wait_s>[\d.]+) seconds for CUDA coredumps before exiting\.", fatal=True),
        *_SHUTDOWN,
    ),
    "Dumping": (rule(Mark.DYING, r"Dumping requests before crash\.", fatal=True),),
    "Dumped": (rule(Mark.DYING, r"Dumped \d+ finished and \d+ unfinished requests before crash", fatal=True),),
    "CUDA": (rule(Mark.DYING, r"CUDA (?:coredump pipe |user-triggered coredump is not enabled)", fatal=True),),
    "Schedulers": (rule(Mark.SHUTDOWN, r"Schedulers still alive (?P<waited_s>\d+)s after ShutdownReq"),),
    "kill_process_tree": (rule(Mark.SHUTDOWN, r"kill_process_tree called: "),),
    "Shutting": _SHUTDOWN,
    "Application": _SHUTDOWN,
    "Finished": _SHUTDOWN,
    "[Errno": (
        rule(
            Mark.PORT_IN_USE, r"\[Errno 98\] error while attempting to bind on address .{0,100}address already in use", fatal=True
        ),
    ),
    "Initialization": (
        rule(Mark.WARMUP_FAILED, r"Initialization failed\. warmup error: ", fatal=True),
        rule(Mark.FATAL, r"Initialization failed\. Please see the error messages above\.", fatal=True),
    ),
    "The": (rule(Mark.MEMORY_UNBALANCED, r"The memory capacity is unbalanced\."),),
    "Prefill": _OUT_OF_MEMORY,
    "Decode": _OUT_OF_MEMORY,
    "KV": (
        rule(
            Mark.RETRACT,
            r"KV cache pool is full\. Retract requests\. #retracted_reqs: (?P<retracted>\d+)"
            r"(?:, #aborted_retracted_reqs: (?P<aborted>\d+))?(?:, #new_tokens_gained: (?P<tokens_gained>-?\d+))?",
        ),
    ),
    "retract_decode:": (rule(Mark.ABORTED, r"retract_decode: aborted (?:last )?request", cause="out-of-memory"),),
    "Abort": (rule(Mark.ABORTED, r"Abort (?:\w+ ){1,2}request\. ", cause="client"),),
    "Detected": (rule(Mark.NAN, r"Detected errors during sampling! NaN in the logits\."),),
    "NaN": (rule(Mark.NAN, r"NaN detected in (?P<text_where>[^;]{1,100}); values were sanitized before sampling"),),
    "token_to_kv_pool_allocator": _LEAK,
    "req_to_token_pool": _LEAK,
    "pool": _LEAK,
    # Seen in 0.5.10. It is about pinned prefixes, not pinned memory; zero is its default (SGLANG_HICACHE_MAX_PINNED_RATIO): by
    # itself the line proves nothing, though it was reported of servers that made 0.2 token/s (sgl-project/sglang#21880).
    "Pin": (
        rule(Mark.HICACHE_TROUBLE, r"Pin budget: (?P<tokens>0) tokens(?: \(ratio=(?P<ratio>[\d.]+)\))?", cause="pin-budget"),
        rule(Mark.STARTING, r"Pin budget: (?P<tokens>\d+) tokens(?: \(ratio=(?P<ratio>[\d.]+)\))?"),
    ),
    "Hugepage": (rule(Mark.HICACHE_TROUBLE, r"Hugepage mmap via libc failed ", cause="hugepages"),),
    "cudaHostRegister": (rule(Mark.HICACHE_TROUBLE, r"cudaHostRegister failed", cause="register"),),
    "cudaHostUnregister": (rule(Mark.HICACHE_TROUBLE, r"cudaHostUnregister failed", cause="unregister"),),
    "write_back:": (rule(Mark.HICACHE_TROUBLE, r"write_back: .{0,300}?host memory pressure", cause="write-back"),),
    "load_back:": (rule(Mark.HICACHE_TROUBLE, r"load_back: FAILED to load (?P<tokens>\d+) tokens", cause="load-back"),),
    "Write": (rule(Mark.HICACHE_TROUBLE, r"Write page to storage: (?P<pages>\d+) pages failed\.", cause="storage-write"),),
    "Prefetch": (rule(Mark.HICACHE_TROUBLE, r"Prefetch operation \S{1,100} failed to retrieve page", cause="prefetch"),),
    "Attach": (rule(Mark.HICACHE_TROUBLE, r"Attach HiCache storage backend failed with exception\.", cause="storage-attach"),),
    "Detach": (rule(Mark.HICACHE_TROUBLE, r"Detach HiCache storage backend failed with exception\.", cause="storage-attach"),),
    "attach_hybrid_pool_to_unified_cache": (
        rule(Mark.HICACHE_TROUBLE, r"attach_hybrid_pool_to_unified_cache failed", cause="attach"),
    ),
}

# What the last line of a traceback says after "SomeError: ". torch and gloo put a place in their source before it.
RAISED: tuple[Rule, ...] = (
    # first, as there are many where clients come and go
    rule(Mark.ABORTED, r"Request is disconnected from the client side", cause="client"),
    rule(
        Mark.HOST_MEMORY_SHORT,
        r"Not enough host memory available\. Requesting (?P<requested_gb>[\d.]+) GB "
        r"but only have (?P<available_gb>-?[\d.]+) GB free",
        fatal=True,
    ),
    rule(
        Mark.HOST_MEMORY_SHORT,
        r".{0,200}?DefaultCPUAllocator: can't allocate memory: you tried to allocate (?P<requested_bytes>\d+)",
    ),
    rule(Mark.HOST_MEMORY_SHORT, r"\[Errno 12\] Cannot allocate memory"),
    rule(Mark.NO_SPACE, r"\[Errno 28\] No space left on device"),
    rule(Mark.OUT_OF_MEMORY, r"(?:.{0,80}? failed: )?CUDA out of memory\.", fatal=True),
    rule(Mark.OUT_OF_MEMORY, r"(?:Prefill|Decode) out of memory\. Try to lower your batch size\.", fatal=True),
    rule(Mark.OUT_OF_MEMORY, r"Out of memory even after retracting all other requests", fatal=True),
    rule(Mark.OUT_OF_MEMORY, r"Not enough memory\. Please try to increase --mem-fraction-static", fatal=True, cause="no-kv-room"),
    rule(Mark.OUT_OF_MEMORY, r"Loaded weights leave no GPU memory for the KV cache", fatal=True, cause="no-kv-room"),
    rule(Mark.MEMORY_UNBALANCED, r"The memory capacity is unbalanced\.", fatal=True),
    rule(Mark.CUDA_ERROR, r"(?:.{0,80}? failed: )?CUDA (?:driver )?error:", fatal=True),
    rule(Mark.CUDA_ERROR, r"Unexpected error from cudaGetDeviceCount\(\)", fatal=True),
    rule(Mark.CUDA_ERROR, r"(?:No CUDA GPUs are available|cuDNN error: |CUBLAS error|CUDA initialization: )", fatal=True),
    rule(Mark.CUDA_ERROR, r"NCCL error", fatal=True, cause="nccl"),
    rule(Mark.LEAK_CHECK, r"(?:token_to_kv_pool_allocator|req_to_token_pool|pool) memory leak detected!", fatal=True),
    rule(Mark.HICACHE_TROUBLE, r"cudaHostRegister failed", fatal=True, cause="register"),
    rule(Mark.HICACHE_TROUBLE, r"The host memory should be larger than the device memory", fatal=True, cause="pool-small"),
    rule(
        Mark.CHILD_DEAD,
        r"Rank (?P<scheduler_rank>\d+) scheduler died during initialization \(exit code: (?P<exit_code>-?\d+|None)\)",
        fatal=True,
        name="scheduler",
    ),
    rule(Mark.FATAL, r"Initialization failed\. Please see the error messages above\.", fatal=True),
    rule(Mark.FATAL, r"TP rank \d+ could finish the model loading, but there are other ranks", fatal=True, cause="load-barrier"),
    rule(Mark.FATAL, r".{0,200}?Connection closed by peer \[", fatal=True, cause="peer-lost"),
    rule(Mark.FATAL, r"Capture .{0,60}? graph failed: ", fatal=True, cause="graphs"),
    rule(Mark.PORT_IN_USE, r"(?:\[Errno 98\] )?Address already in use", fatal=True),
    rule(
        Mark.PORT_IN_USE, r"The server socket has failed to listen on any local network address\..{0,200}?EADDRINUSE", fatal=True
    ),
    rule(Mark.PORT_IN_USE, r"\w{1,40} at \d+ is not available in \d+ seconds", fatal=True),
    rule(Mark.BAD_ARGUMENTS, r"Repo id must be in the form ", fatal=True, cause="model-path"),
    rule(
        Mark.BAD_ARGUMENTS, r".{1,300}? is not a local folder and is not a valid model identifier", fatal=True, cause="model-path"
    ),
    rule(Mark.BAD_ARGUMENTS, r".{1,300}? does not appear to have a file named config\.json", fatal=True, cause="model-path"),
)

# Lines without a logger's prefix that are no traceback: C++, the interpreter, a shell, argparse.
BARE: tuple[Rule, ...] = (
    # NCCL's "Last error:", after the exception that it ends (NCCL, src/misc/shmutils.cc)
    rule(Mark.NO_SPACE, r"Error while creating shared memory segment /dev/shm/.{0,200}?No space left on device"),
    rule(
        Mark.CUDA_ERROR,
        r"\[rank\d+\]:\[E.{0,200}? Process group watchdog thread terminated with exception: CUDA error:",
        fatal=True,
    ),
    rule(
        Mark.FATAL,
        r"\[rank\d+\]:\[E.{0,200}? (?:Watchdog caught collective operation timeout|Process group watchdog thread terminated)",
        fatal=True,
        cause="nccl-timeout",
    ),
    rule(Mark.CUDA_ERROR, r"  what\(\):  .{0,300}?CUDA error: ", fatal=True),
    rule(Mark.FATAL, r"  what\(\):  ", fatal=True, cause="abort"),
    rule(Mark.FATAL, r"terminate called after throwing an instance of ", fatal=True, cause="abort"),
    rule(Mark.FATAL, r"terminate called without an active exception", fatal=True, cause="abort"),
    rule(Mark.FATAL, r"Fatal Python error: (?P<text_error>.{0,100})", fatal=True, cause="abort"),
    rule(Mark.FATAL, r"!{3,} ?Segfault encountered", fatal=True, cause="abort"),
    rule(
        Mark.FATAL,
        r"(?:[\w./~+-]{1,200}: line \d+: +\d+ )?(?P<text_error>Killed|Aborted|Segmentation fault|Bus error)"
        r"(?: +\(core dumped\))?(?: {2,}.*)?$",
        fatal=True,
        cause="killed",
    ),
    rule(
        Mark.BAD_ARGUMENTS,
        r"[\w./ -]{1,100}: error: (?P<text_error>(?:unrecognized arguments|argument |the following arguments are required"
        r"|ambiguous option|invalid ).{0,300})",
        fatal=True,
        cause="command-line",
    ),
)
