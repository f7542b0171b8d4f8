"""Shared memory: the only package that creates and maps it.

A run is an Arrow IPC stream; its losses travel in the metadata of its schema. A run is
stored in one of two ways. In a memfd of its own, which is sealed: no holder of the
descriptor can change it. Or in a segment of the ring, with many other runs: there it is
not overwritten while a reader has it pinned. The kernel frees either memory when the
last descriptor and the last mapping are gone.

    encoded     encodes a run as a stream, and decodes it
    sealed      a run in a memfd of its own
    segment     runs in a segment: the writer's side, and the reader's
    segments    the segments of a ring, owned by the node; imports nothing heavy
    memfd       the files in memory that both consist of
    pipe        a run that is streamed instead of kept
    shared_counters  numbers of a loader that its node reads
"""
