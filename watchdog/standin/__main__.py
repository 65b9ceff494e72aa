"""`python -m watchdog.standin`: the stand-in server."""

import sys

from watchdog.standin import main

sys.exit(main(sys.argv[1:]))
