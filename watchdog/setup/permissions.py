"""What the watchdog's user may do here, asked as that user: `python -m watchdog.setup.permissions CONFIG UNIT...` prints JSON."""

import asyncio
import json
import os
import sys
from typing import Any

from watchdog.act.rights import rights
from watchdog.systemd import Bus, running

BUS_LIMIT_S = 5.0


async def asked(units: list[str]) -> dict[str, Any]:
    """For each unit, whether it may be restarted and its processes killed; None where that could not be told."""
    async with running(Bus()) as bus:
        await bus.until_connected(BUS_LIMIT_S)
        found = {}
        for unit in units:
            may = await rights(bus, unit)
            found[unit] = {"restart": may.restart, "kill": may.kill}
        return found


def journal() -> bool:
    """Whether entries of other users can be read: the system's journal is there for us."""
    from systemd.journal import SYSTEM_ONLY, Reader  # noqa: PLC0415

    with Reader(flags=SYSTEM_ONLY) as reader:
        reader.add_match(_UID="0")
        reader.seek_tail()
        return bool(reader.get_previous())


def main(argv: list[str]) -> int:
    """Print it."""
    config, *units = argv
    said = {"config": os.access(config, os.R_OK), "journal": journal(), "units": asyncio.run(asked(units))}
    sys.stdout.write(json.dumps(said) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
