"""Repair: a data folder of a broker that does not run, checked, salvaged and rewritten."""
