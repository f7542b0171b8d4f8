"""The load jobs that wait for a loader, oldest first.

Jobs that a session waits for go first. A busy loader can prepare a queued job: it
requests the job's bytes ahead, and the job then stays with this loader.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sparkcache.node.load_job import LoadJob
    from sparkcache.node.reader_session import Peer

_MAX_PREPARED = 8  # per loader


class LoadQueue:
    """Queued jobs, and the loaders that prepare some of them."""

    def __init__(self) -> None:
        self._jobs: list[LoadJob] = []

    def __repr__(self) -> str:
        return f"LoadQueue({len(self._jobs)} jobs)"

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[LoadJob]:
        return iter(self._jobs)

    def append(self, job: LoadJob) -> None:
        """Add a job."""
        self._jobs.append(job)

    def to_join(self, job: LoadJob) -> LoadJob | None:
        """Return the newest job if the load of another can be done with it."""
        newest = self._jobs[-1] if self._jobs else None
        return newest if newest is not None and job.can_join(newest) else None

    def put_back(self, job: LoadJob) -> None:
        """Add a job that is to be the next one."""
        self._jobs.insert(0, job)

    def pop(self, loader: Peer | None) -> LoadJob | None:
        """Remove and return the next job for an idle loader; None if there is none.

        A loader takes the jobs that it prepared before those that nobody prepares. A
        loader that does not exist yet, None, takes only the latter.
        """
        jobs = [job for job in self._jobs if job.loader is loader]
        jobs = jobs or [job for job in self._jobs if job.loader is None]
        if not jobs:
            return None
        job = min(jobs, key=lambda job: not job.is_awaited())
        self._jobs.remove(job)
        return job

    def remove(self, job: LoadJob) -> None:
        """Remove a job."""
        self._jobs.remove(job)

    def release(self, loader: Peer) -> None:
        """Let other loaders take the jobs that a loader prepared."""
        for job in self._jobs:
            if job.loader is loader:
                job.loader = None

    def prepare(self, busy: Mapping[Peer, LoadJob]) -> Iterator[tuple[Peer, LoadJob]]:
        """Assign jobs to busy loaders that can prepare them; yield these.

        A loader prepares several small jobs, or one large job near the end of its own.
        """
        prepared: Counter[Peer | None] = Counter()
        for job in self._jobs:
            prepared[job.loader] += 1 if job.is_small else _MAX_PREPARED
        for job in self._jobs:
            if job.loader is not None:
                continue
            limit = _MAX_PREPARED if job.is_small else 1
            loaders = [
                loader
                for loader, current in busy.items()
                if prepared[loader] < limit and (job.is_small or current.is_small)
            ]
            if loaders:
                job.loader = min(loaders, key=lambda loader: prepared[loader])
                prepared[job.loader] += 1 if job.is_small else _MAX_PREPARED
                yield job.loader, job

    def needs(self, loader: Peer, ending: int) -> bool:
        """Return whether an awaited job cannot start unless a loader becomes free.

        Args:
            loader: The loader that might be freed.
            ending: How many loaders will be free soon without that.

        """
        awaited = [job.loader for job in self._jobs if job.is_awaited()]
        return loader in awaited or awaited.count(None) > ending

    def check(self, busy: Mapping[Peer, LoadJob], *, has_idle: bool) -> None:
        """Assert the invariants, which hold after each dispatch. For tests."""
        assert all(job.loader is None or job.loader in busy for job in self._jobs)
        assert not has_idle or all(job.loader for job in self._jobs)
