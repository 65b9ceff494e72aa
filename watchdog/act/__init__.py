"""Actions: they carry out intents and report back what came of them. They decide nothing."""
