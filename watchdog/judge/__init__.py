"""Judges: observations in, conditions and intents out. Pure: no clock, no I/O, the same input gives the same verdict."""
