"""Setting up on a host: what is there (`host`), what to write (`configuration`, `dropin`, `service`), and writing it (`plan`)."""
