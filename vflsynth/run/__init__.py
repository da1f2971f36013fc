"""Runs: match, encode, agree, build, train, keep. In one process or across processes."""
