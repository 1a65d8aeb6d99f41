"""Frames and figures for people: lines, tables, JSON."""
