"""Changes that providers announce: their followers, the pacing of reads, and the resume position of streams."""
