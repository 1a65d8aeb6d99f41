"""Files of frames: captures, pcapng, Parquet, read and written."""
