"""The stacks helper: an optional process of its own, with the rights to look into the processes of another user, for one request.

systemd starts it for each connection to /run/sglang-watchdog-stacks.sock (units/sglang-watchdog-stacks.socket). It reads and
never stops, traces, signals or writes to a process: its sandbox has no ptrace(2) and no process_vm_writev(2), and /proc is
read-only.
It imports little, since it has rights: no network, no D-Bus, no event loop.
"""
