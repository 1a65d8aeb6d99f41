"""Output of frames and figures: lines, tables, JSON."""
