"""A stand-in SGLang server with faults to order: for the demo, fire drills and tests."""
