"""What is peculiar to SGLang, by version: its log lines, arguments, metrics, processes and memory arithmetic. Pure."""
