"""Shared memory: the only place that creates and maps it.

A run lies in a memfd of its own, as an Arrow IPC stream, sealed: nobody can change
it, whoever has the descriptor. Its losses travel in the metadata of its schema.
The kernel frees it when the last descriptor and the last mapping are gone.
"""

from sparkcache.memory.sealed import EncodedRun, map_run, read_run

__all__ = ["EncodedRun", "map_run", "read_run"]
