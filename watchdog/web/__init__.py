"""The status page, its API and the metrics exporter."""
