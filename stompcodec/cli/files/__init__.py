"""Files of frames: reading and writing captures, pcapng and Parquet."""
