"""Circuit breakers: calls to a provider that does not answer are refused for a while.

Only infrastructure failures count: the provider was not reached or did not answer in time. Any answer, even an error,
resets the count. A timeout counts once for each identity, because the backend of one identity may be slow, which must
not lock out the others. Handshakes ignore the breaker (`directory.py` paces them); a successful one closes it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from eso_operator.providers.errors import NoAnswerError, is_infrastructure
from eso_operator.providers.protection.valve import Admission, Valve
from eso_operator.providers.settings import BreakerSettings
from eso_wire.errors import ProviderError
from kubebase.backoff import Random, system_random
from kubebase.bounded import BoundedDict
from kubebase.clock import Clock

STATES: Final = ("closed", "half-open", "open")
"""States, best first."""

MAX_BREAKERS: Final = 1000


class BreakerKey(NamedTuple):
    """The key of a breaker. Bad certificates or short timeouts of one user must not affect others."""

    connection: str
    connect_timeout: float | None
    call_timeout: float | None


class Breakers:
    """All breakers, by key and provider; bounded, the oldest is evicted."""

    def __init__(self, clock: Clock, settings: BreakerSettings, draw: Random = system_random) -> None:
        self._clock = clock
        self._settings = settings
        self._draw = draw
        self._known: BoundedDict[BreakerKey, tuple[str, Breaker]] = BoundedDict(MAX_BREAKERS, self._forget)
        self._of_provider: dict[str, dict[BreakerKey, Breaker]] = {}

    def of(self, provider: str, key: BreakerKey) -> Breaker:
        if (known := self._known.get(key)) is not None:
            return known[1]
        breaker = Breaker(self._clock, self._settings, self._draw)
        self._of_provider.setdefault(provider, {})[key] = breaker
        self._known[key] = provider, breaker
        return breaker

    def worst(self, provider: str) -> str:
        """Return the worst state among the breakers of a provider."""
        states = [breaker.state for breaker in self._of_provider.get(provider, {}).values()]
        return max(states, key=STATES.index, default=STATES[0])

    def reopen(self, connection: str) -> None:
        """Close all breakers of a connection, after a successful handshake."""
        for key, (_, breaker) in self._known.items():
            if key.connection == connection:
                breaker.answered()

    def _forget(self, key: BreakerKey, evicted: tuple[str, Breaker]) -> None:
        provider, _ = evicted
        of_provider = self._of_provider[provider]
        del of_provider[key]
        if not of_provider:
            del self._of_provider[provider]


class Breaker:
    """The breaker of one connection and its timeouts."""

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
        """Admit a call, or raise the last failure while the breaker is open.

        An admitted call must report with `answered`, `failed` or `gave_up`.
        """
        return await self._valve.enter(within)

    def answered(self) -> None:
        self._failures = self._rests = 0
        self._silent.clear()
        self._valve.open()

    def failed(self, error: ProviderError, admission: Admission, identity: str = "") -> None:
        """Report a failed call. `identity` is that of the caller; empty for a handshake, which needs no backend."""
        if not is_infrastructure(error):
            self.answered()
            return
        if admission is Admission.OPEN and not self._valve.is_open:
            return  # the call was sent before the breaker opened
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
        """Report a call without a result, for example a cancelled one."""
        if admission is Admission.PROBE:
            self._valve.abandon()
