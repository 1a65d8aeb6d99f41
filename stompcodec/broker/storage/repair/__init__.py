"""Repair: checks, salvages and compacts the data folder of a broker that is not running."""
