"""The storage room: what outlives the process: messages, bodies, their folder and their checksums."""
