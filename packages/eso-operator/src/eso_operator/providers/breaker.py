"""A circuit breaker for each endpoint: a provider process that does not answer is left alone for a while.

It counts failures of the infrastructure only: not reached, or silent until the deadline. Whatever a provider answers,
even an error, shows that it is there. Silence counts once for each identity: it may be the backend of one of them that
is silent, and that must not lock out the others. Handshakes are made all the same, at a pace of their own
(`directory.py`): one that is answered opens the breaker for everybody.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

from eso_operator.providers.errors import NoAnswerError, is_infrastructure
from eso_operator.providers.settings import BreakerSettings
from eso_operator.providers.valve import Admission, Valve
from eso_wire.errors import ProviderError
from kuberun.backoff import Random, system_random
from kuberun.clock import Clock

STATES: Final = ("closed", "half-open", "open")
"""From good to bad."""

MAX_BREAKERS: Final = 1000


class BreakerKey(NamedTuple):
    """One user's bad certificates, or a timeout nobody could keep to, say nothing about the others."""

    connection: str
    connect_timeout: float | None
    call_timeout: float | None


class Breakers:
    """All of them, with the provider that each belongs to; bounded, the oldest is made anew when it is needed."""

    def __init__(self, clock: Clock, settings: BreakerSettings, draw: Random = system_random) -> None:
        self._clock = clock
        self._settings = settings
        self._draw = draw
        self._known: OrderedDict[BreakerKey, tuple[str, Breaker]] = OrderedDict()
        self._of_provider: dict[str, dict[BreakerKey, Breaker]] = {}

    def of(self, provider: str, key: BreakerKey) -> Breaker:
        if (known := self._known.get(key)) is not None:
            return known[1]
        breaker = Breaker(self._clock, self._settings, self._draw)
        self._known[key] = provider, breaker
        self._of_provider.setdefault(provider, {})[key] = breaker
        if len(self._known) > MAX_BREAKERS:
            self._forget_oldest()
        return breaker

    def worst(self, provider: str) -> str:
        """The state of that provider's breaker which is in the worst one."""
        states = [breaker.state for breaker in self._of_provider.get(provider, {}).values()]
        return max(states, key=STATES.index, default=STATES[0])

    def reopen(self, connection: str) -> None:
        """A handshake was answered: nobody has to wait for a rest, whatever timeouts their calls have."""
        for key, (_, breaker) in self._known.items():
            if key.connection == connection:
                breaker.answered()

    def _forget_oldest(self) -> None:
        key, (provider, _) = self._known.popitem(last=False)
        of_provider = self._of_provider[provider]
        del of_provider[key]
        if not of_provider:
            del self._of_provider[provider]


class Breaker:
    """The breaker of one endpoint."""

    def __init__(self, clock: Clock, settings: BreakerSettings, draw: Random = system_random) -> None:
        self._settings = settings
        self._draw = draw
        self._valve = Valve(clock)
        self._failures = 0
        self._silent: set[str] = set()
        self._rests = 0

    @property
    def state(self) -> str:
        if self._valve.is_open:
            return "closed"
        return "half-open" if self._valve.is_probing else "open"

    async def enter(self, within: float) -> Admission:
        """Raise the last failure while the endpoint rests; otherwise report with `answered`, `failed`, `gave_up`."""
        return await self._valve.enter(within)

    def answered(self) -> None:
        self._failures = self._rests = 0
        self._silent.clear()
        self._valve.open()

    def failed(self, error: ProviderError, admission: Admission, identity: str = "") -> None:
        """`identity` is on whose behalf it was called; empty for a handshake, which needs no backend."""
        if not is_infrastructure(error):
            self.answered()
            return
        if admission is Admission.OPEN and not self._valve.is_open:
            return  # sent before it was shut: nothing new
        if identity and isinstance(error, NoAnswerError):
            self._silent.add(identity)
        else:
            self._failures += 1
        if self._failures + len(self._silent) >= self._settings.threshold:
            self._rests += 1
            self._valve.shut(error, self._settings.rest.delay(self._rests, self._draw))
        else:
            self.gave_up(admission)

    def gave_up(self, admission: Admission) -> None:
        """The caller was cancelled before anything was learnt."""
        if admission is Admission.PROBE:
            self._valve.abandon()
