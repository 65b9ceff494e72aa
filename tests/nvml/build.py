"""Builds the fake NVML library and writes the file that drives it."""

import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("fake.c")

HEALTHY = {
    "count": 8,
    "util": 37,
    "mem_used": 94_209_310_720,
    "power_mw": 410_500,
    "power_limit_mw": 700_000,
    "temp": 55,
    "sm_mhz": 1755,
    "sm_max_mhz": 1980,
    "reasons": 0x4,
    "violation_power_ns": 12_500_000_000,
    "violation_thermal_ns": 0,
    "ecc": 0,
    "rows_pending": 0,
    "mig": 0,
    "fabric": 3,
    "links": 18,
    "procs": 1,
    "proc0.pid": 4994,
    "proc0.mem": 93_651_468_288,
}
"""Eight H100-like GPUs at work, each with one process; keys of fake.c."""


class FakeNvml:
    """A directory with a libnvidia-ml.so.1 whose answers a test sets."""

    def __init__(self, directory: Path, state: Path) -> None:
        self.directory = directory
        self._state = state
        self.set()

    @property
    def environment(self) -> dict[str, str]:
        return {"LD_LIBRARY_PATH": str(self.directory), "FAKE_NVML": str(self._state)}

    def set(self, **changes: int | None) -> None:
        """The healthy state with changes; `gpu3__util=0` is for device 3 alone, `__` a dot, None takes a key away."""
        values: dict[str, int | None] = {f"*.{key}": value for key, value in HEALTHY.items()}
        for key, value in changes.items():
            scope, _, rest = key.partition("__")
            if scope.removeprefix("gpu").isdigit():
                values[f"{scope.removeprefix('gpu')}.{rest.replace('__', '.')}"] = value
            else:
                values[f"*.{key.replace('__', '.')}"] = value
        text = "".join(f"{key} {value}\n" for key, value in values.items() if value is not None)
        new = self._state.with_suffix(".new")
        new.write_text(text)
        new.replace(self._state)


def build(directory: Path) -> Path:
    """Compile libnvidia-ml.so.1 into a directory."""
    library = directory / "libnvidia-ml.so.1"
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o", library, SOURCE], check=True, timeout=60
    )
    return library
