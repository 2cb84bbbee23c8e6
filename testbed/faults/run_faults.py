"""The faults of a run: what they need from its start on, and each request's share of them."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from testbed.config import RunConfig
from testbed.faults.base import FaultyLink, FaultyServer, Scene
from testbed.faults.disk_full import disk_of_its_own
from testbed.faults.fake_clock import FakeClock
from testbed.faults.injector import FaultInjector
from testbed.faults.plan import parse_faults
from testbed.run_dir import RunDir


class RunFaults:
    """Injects the plan of a run's configuration into each of its requests.

    Parameters
    ----------
    config : RunConfig
        Has the plan.
    run_dir : RunDir
        Its events get the faults' own.

    Raises
    ------
    InvalidInputError
        A fault that this machine cannot have.
    """

    def __init__(self, config: RunConfig, run_dir: RunDir) -> None:
        self._plan, self._seed, self._dir = parse_faults(config.faults), config.seed, run_dir
        self._kinds = {fault.kind for fault in self._plan}
        self._clock = FakeClock(run_dir.path / "clock-offset") if "clock-jump" in self._kinds else None

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables that the run's programs need for the faults to reach them."""
        return {} if self._clock is None else self._clock.environment

    def store_place(self, store: Path) -> AbstractContextManager[None]:
        """Give the store a disk that can be filled, if the plan fills it."""
        return disk_of_its_own(store) if "disk-full" in self._kinds else nullcontext()

    @contextmanager
    def during(
        self, request: int, method: str, arrival_s: float, server: FaultyServer, link: FaultyLink
    ) -> Iterator[None]:
        """Inject while the block serves a request; all is mended when it ends."""
        if not self._plan:
            yield
            return
        injector = FaultInjector(
            self._plan,
            Scene(server, link, self._dir.store, self._clock),
            arrival_s,
            lambda event: self._dir.add_event({"request": request, "method": method, **event}),
            # the same objects for every method
            f"{self._seed}/{request}",
        )
        injector.start()
        try:
            yield
        finally:
            injector.stop()
