"""Shared memory: the only place that creates and maps it.

A run is an Arrow IPC stream; its losses travel in the metadata of its schema. It lies
either in a memfd of its own, which is sealed: nobody can change it, whoever has the
descriptor. Or in a segment of the ring, with many others, where it stays as it is
for as long as a reader has said that it maps it. The kernel frees either when the last
descriptor and the last mapping are gone.

    encoded     a run as a stream, and back
    sealed      a run in a memfd of its own
    segment     runs in a segment: the writer's side, and the reader's
    pipe        a run that is not kept
    keeper      what a node has descriptors of. It and `segments` import nothing heavy
"""
