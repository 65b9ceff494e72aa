"""The start of a scheduler rank: its phases, in the order and wording of the version.

After the reconstructed start-up journals of 0.5.9 and 0.5.23 (8 ranks, Kimi-K2.5 with an EAGLE3 draft and HiCache), which
follow the logging order of the released wheels; the figures that do not depend on options are those of that deployment.
"""

import os
import random
import signal
import time

from watchdog.standin.log import Log
from watchdog.standin.options import DRAFT_SHARE, KIMI_TOKEN_BYTES, Options
from watchdog.standin.pool import HostPool

GRAPH_SIZES = [1, 2, 4, 8, 12, 16, 24, 32, 40, 48]
STUCK_SHARE = 0.45
"""A start that gets stuck while it loads weights does so after this share of the files."""


class StartFailedError(Exception):
    """The start fails here, as ordered; the text is that of the exception in the real server."""


class RankStart:
    """Starts one rank. Rank 0 prints what only rank 0 prints, and is the one that gets stuck or fails when that was ordered."""

    def __init__(self, options: Options, rank: int, log: Log, pool: HostPool) -> None:
        self._options = options
        self._rank = rank
        self._log = log
        self._pool = pool
        self._spread = random.Random(rank).uniform(0.9, 1.0)

    def run(self) -> None:
        """All phases before the rank is ready.

        Raises:
            StartFailedError: ordered with --fail-at.
        """
        self._init()
        if self._options.since(0, 5, 14):
            self._weights(draft=False)
            self._draft_weights()
            self._kv_cache(draft=False)
            self._draft_kv_cache()
            self._graphs_since_0_5_14()
        else:
            self._weights(draft=False)
            self._kv_cache(draft=False)
            self._graphs(draft=False)
            self._draft_weights()
            self._draft_kv_cache()
            self._graphs(draft=True)
        self._tokens_total()
        self._tree_cache()

    def _spend(self, phase: str, share: float = 1.0) -> None:
        time.sleep(self._options.phases[phase] * share * self._spread)

    def _enter(self, phase: str) -> None:
        if self._rank:
            return
        if self._options.fail_at == phase:
            self._fail(self._options.failure or "exception")
        if self._options.stuck_at == phase:
            stay_for_ever()

    def _fail(self, kind: str) -> None:
        if kind == "oom-kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if kind == "host-memory":
            wanted = self._options.pool_bytes / 1e9
            raise StartFailedError(
                f"ValueError: Not enough host memory available. Requesting {wanted:.2f} GB "
                f"but only have {wanted * 0.4:.2f} GB free. Please reduce the size of the hierarchical cache."
            )
        if kind == "gpu-memory":
            if self._options.since(0, 5, 16):
                raise StartFailedError(
                    "ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static="
                    f"{self._options.server['mem_fraction_static']}. Raise --mem-fraction-static above 0.95."
                )
            raise StartFailedError(
                "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. "
                f"Current value: self.server_args.mem_fraction_static={self._options.server['mem_fraction_static']}"
            )
        raise StartFailedError("RuntimeError: stand-in: this start was ordered to fail")

    def _init(self) -> None:
        new = self._options.since(0, 5, 21)
        self._log.line("Init parallel begin." if new else "Init torch distributed begin.")
        self._enter("init")
        if self._rank == 0 and self._options.ranks > 1:
            self._log.line(f"sglang is using nccl=={'2.28.9' if new else '2.27.7'}")
        self._spend("init")
        self._init_end(self._options.phases["init"] * self._spread, 1.21)
        self._log.line("Ignore import error when loading sglang.srt.models.midashenglm: No module named 'torchaudio'")

    def _init_end(self, elapsed: float, usage: float) -> None:
        if self._options.since(0, 5, 21):
            self._log.line(f"Init parallel ends. elapsed={elapsed:.2f} s")
            self._log.line(f"Memory baseline taken. mem usage={usage:.2f} GB")
        elif self._options.since(0, 5, 9):
            self._log.line(f"Init torch distributed ends. elapsed={elapsed:.2f} s, mem usage={usage:.2f} GB")
        else:
            self._log.line(f"Init torch distributed ends. mem usage={usage:.2f} GB")

    def _weights(self, *, draft: bool) -> None:
        before, usage = (20.38, 0.62) if draft else (93.61, 73.23)
        self._log.line(f"Load weight begin. avail mem={before:.2f} GB")
        begun = time.monotonic()
        self._shards(draft=draft)
        elapsed = time.monotonic() - begun
        kind = "LlamaForCausalLMEagle3" if draft else "KimiK25ForConditionalGeneration"
        parts = [f"elapsed={elapsed:.2f} s"] if self._options.since(0, 5, 9) else []
        parts.append(f"type={kind}")
        if not self._options.since(0, 5, 10):
            parts.append("dtype=torch.bfloat16")
        elif not draft:
            parts.append("quant=compressed-tensors")
        parts += [f"avail mem={before - usage:.2f} GB", f"mem usage={usage:.2f} GB."]
        self._log.line("Load weight end. " + ", ".join(parts))

    def _shards(self, *, draft: bool) -> None:
        """The bar of rank 0, one line a file; the other ranks load in silence."""
        count, share = (1, 0.05) if draft else (self._options.shards, 0.95)
        if self._rank:
            self._spend("weights", share)
            return
        title = "Multi-thread loading shards" if self._options.since(0, 5, 10) else "Loading safetensors checkpoint shards"
        each = self._options.phases["weights"] * share / count
        for done in range(count + 1):
            if not draft and done == int(count * STUCK_SHARE):
                self._enter("weights")
            if done:
                self._spend("weights", share / count)
            rate = f"{each:5.2f}s/it" if done else "?it/s"
            times = f"{_clock(each * done)}<{_clock(each * (count - done)) if done else '?'}"
            self._log.raw(f"{title}: {100 * done // count:3d}% Completed | {done}/{count} [{times}, {rate}]")
        self._log.raw("")

    def _draft_weights(self) -> None:
        if not self._options.drafts:
            return
        if self._options.since(0, 5, 21):
            self._log.line("Memory baseline taken. mem usage=0.00 GB")
        else:
            self._log.line("Init torch distributed begin.")
            self._init_end(0.02, 0.0)
        self._weights(draft=True)

    def _kv_cache(self, *, draft: bool) -> None:
        if not draft:
            self._enter("kv")
        if self._rank == 0 and not self._options.since(0, 5, 13):
            self._log.line("Using KV cache dtype: torch.bfloat16")
        self._spend("kv", 0.2 if draft else 0.8)
        tokens = self._options.kv_tokens
        dtype = "dtype: torch.bfloat16, " if self._options.since(0, 5, 13) else ""
        size = self.token_bytes * tokens / 2**30
        sizes = (
            f"K size: {size * DRAFT_SHARE / 2:.2f} GB, V size: {size * DRAFT_SHARE / 2:.2f} GB"
            if draft
            else f"KV size: {size:.2f} GB"
        )
        self._log.line(f"KV Cache is allocated. {dtype}#tokens: {tokens}, {sizes}")
        self._log.line(f"Memory pool end. avail mem={8.64 if draft else 9.27:.2f} GB")

    def _draft_kv_cache(self) -> None:
        if self._options.drafts:
            self._kv_cache(draft=True)

    @property
    def token_bytes(self) -> float:
        """Bytes of a token: the reference deployment's, or what makes the ordered host pool hold ratio times the KV cache."""
        host = self._options.host_tokens
        return self._options.pool_bytes / host if host else KIMI_TOKEN_BYTES

    def _graphs(self, *, draft: bool) -> None:
        if self._options.server["disable_cuda_graph"] or (draft and not self._options.drafts):
            return
        for name, share in (("draft cuda graph", 0.2), ("draft extend cuda graph", 0.1)) if draft else (("cuda graph", 0.7),):
            self._log.line(f"Capture {name} begin. This can take up to several minutes. avail mem=9.60 GB")
            self._enter("graphs")
            if self._rank == 0 and not draft:
                self._log.line(f"Capture cuda graph bs {GRAPH_SIZES}")
            self._spend("graphs", share)
            self._bar(share)
            if self._rank == 0 and not draft:
                self._log.line("Registering 2440 cuda graph addresses")
            elapsed = self._options.phases["graphs"] * share * self._spread
            self._log.line(f"Capture {name} end. Time elapsed: {elapsed:.2f} s. mem usage=1.38 GB. avail mem=8.22 GB.")

    def _graphs_since_0_5_14(self) -> None:
        if self._options.server["disable_cuda_graph"]:
            return
        steps = self._options.server["speculative_num_draft_tokens"] or 1
        captures = [("target verify" if self._options.drafts else "target decode", steps, 0.7)]
        if self._options.drafts and self._rank == 0:
            captures += [("draft decode", 1, 0.2), ("draft extend", steps, 0.1)]
        per = "num_tokens_per_req" if self._options.since(0, 5, 16) else "num_tokens_per_bs"
        for name, tokens, share in captures:
            target = name.startswith("target")
            begin, end = (
                (f"bs={GRAPH_SIZES}, ", "") if not target or not self._options.since(0, 5, 22) else ("", f"bs={GRAPH_SIZES}, ")
            )
            self._log.line(f"Capture {name} CUDA graph begin. backend=full, {per}={tokens}, {begin}avail mem=8.60 GB")
            self._enter("graphs")
            self._spend("graphs", share)
            self._bar(share)
            elapsed = self._options.phases["graphs"] * share * self._spread
            self._log.line(f"Capture {name} CUDA graph end. {end}elapsed={elapsed:.2f} s, mem usage=1.38 GB, avail mem=7.22 GB.")

    def _bar(self, share: float) -> None:
        """The bar of the capture: its states are parted by carriage returns, so that journald sees one line when it closes."""
        if self._rank:
            return
        count = len(GRAPH_SIZES)
        each = self._options.phases["graphs"] * share / count
        states = []
        for done in range(count + 1):
            size = GRAPH_SIZES[max(count - 1 - done, 0)]
            bar = ("█" * (10 * done // count)).ljust(10)
            times = f"[{_clock(each * done)}<{_clock(each * (count - done))}, {each:5.2f}s/it]"
            states.append(
                f"Capturing batches (bs={size} avail_mem={8.5 - 0.1 * done:.2f} GB): "
                f"{100 * done // count:3d}%|{bar}| {done}/{count} {times}"
            )
        self._log.raw("\r".join(["", *states]))

    def _tokens_total(self) -> None:
        if self._rank:
            return
        server = self._options.server
        self._log.line(
            f"max_total_num_tokens={self._options.kv_tokens}, chunked_prefill_size={server['chunked_prefill_size']}, "
            f"max_prefill_tokens={server['max_prefill_tokens']}, max_running_requests={server['max_running_requests']}, "
            f"context_len={server['context_length']}, available_gpu_mem=6.88 GB"
        )

    def _tree_cache(self) -> None:
        hicache = bool(self._options.server["enable_hierarchical_cache"])
        if self._options.since(0, 5, 18):
            self._log.line("Init Unified Radix Cache. Components: (<ComponentType.FULL: 0>,). Tree Core: RustUnifiedTreeCore")
        if hicache:
            self._host_pool("kv", self._options.host_tokens, self._options.pool_bytes)
        if hicache and self._options.since(0, 5, 11):
            self._log.line("Attached hybrid pool stack to UnifiedRadixCache: pools=KV, transfer_layer_id_max=61")
        if self._options.since(0, 5, 13):
            self._log.line(
                "Tree cache initialized: source=default impl=UnifiedRadixCache hybrid_swa=False hybrid_ssm=False "
                f"hicache_attached={hicache}"
            )
        if self._options.draft_pool_bytes:
            self._host_pool("draft", self._options.host_tokens, self._options.draft_pool_bytes)

    def _host_pool(self, label: str, tokens: int, size: int) -> None:
        if self._options.since(0, 5, 21):
            self._log.line("HiCache memory headroom: host 1013.4 GiB, cgroup 980.0 GiB")
        if self._options.since(0, 5, 17):
            self._log.line(f"Allocating {label} hierarchical KV host pool: {tokens} tokens, {size / 1e9:.2f} GB host memory.")
        else:
            self._log.line(f"Allocating {size / 1e9:.2f} GB host memory for hierarchical KV cache.")
        if label == "kv":
            self._enter("pool")
        share = (0.9 if self._options.draft_pool_bytes else 1.0) if label == "kv" else 0.1
        self._pool.allocate(size, lambda part: self._spend("pool", share * part))


def stay_for_ever() -> None:
    """What a stuck process does."""
    while True:
        time.sleep(3600)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes:02d}:{rest:02d}"
