"""Life of a shared token on a virtual clock: logins, renewals, refusals. The server's side is scripted."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field

import pytest

from eso_api.values import SecretBytes
from eso_provider_vault.auth.methods import PASSWORD_PAUSES
from eso_provider_vault.identities import Grant, Identities, SharedToken
from eso_sdk.errors import rejected, unavailable
from eso_sdk.logins import Pauses
from eso_wire.errors import ProviderError
from kubebase.testing.clock import VirtualClock


@dataclass
class Server:
    """Grants tokens s.1, s.2, ... and remembers what it was asked."""

    clock: VirtualClock = field(default_factory=VirtualClock)
    ttl: float = 3600.0
    renewable: bool = True
    longest: float = math.inf
    """Seconds after its login at which a token ends, however often it is renewed."""
    delay: float = 0.0
    problem: ProviderError | None = None
    logins: int = 0
    renewals: int = 0
    lookups: int = 0
    revoked: list[str] = field(default_factory=list)
    ends: dict[str, float] = field(default_factory=dict)
    born: dict[str, float] = field(default_factory=dict)

    def alive(self, token: SecretBytes) -> bool:
        return self.ends.get(token.reveal().decode(), 0.0) > self.clock.monotonic()


@dataclass(eq=False)
class ScriptedLogin:
    """One session's way to the server."""

    server: Server
    proof: bytes = b"proof"
    pauses: Pauses = field(default_factory=Pauses)
    owns_tokens: bool = True
    closed: bool = False

    async def log_in(self) -> Grant:
        assert not self.closed
        server = self.server
        server.logins += 1
        await server.clock.sleep(server.delay)
        if server.problem is not None:
            raise server.problem
        token, now = f"s.{server.logins}", server.clock.monotonic()
        server.ends[token], server.born[token] = now + server.ttl, now
        if not self.owns_tokens:
            return Grant(SecretBytes(token.encode()), examined=False)
        return Grant(SecretBytes(token.encode()), server.ttl, server.renewable)

    async def examine(self, token: SecretBytes) -> Grant:
        self.server.lookups += 1
        return Grant(token, self.server.ttl, self.server.renewable)

    async def renew(self, token: SecretBytes, increment: float) -> Grant:
        assert not self.closed
        server, name, now = self.server, token.reveal().decode(), self.server.clock.monotonic()
        server.renewals += 1
        if not server.alive(token):
            raise rejected("gone")
        ttl = min(increment, server.born[name] + server.longest - now)
        server.ends[name] = now + ttl
        return Grant(token, ttl, renewable=True)

    async def is_valid(self, token: SecretBytes) -> bool:
        self.server.lookups += 1
        return self.server.alive(token)

    async def revoke(self, token: SecretBytes) -> None:
        self.server.revoked.append(token.reveal().decode())
        self.server.ends.pop(token.reveal().decode(), None)


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def table(server: Server) -> Identities:
    return Identities(server.clock)


def join(table: Identities, server: Server, key: bytes = b"key", proof: bytes = b"proof") -> SharedToken:
    return table.join(key, ScriptedLogin(server, proof))


async def token(source: SharedToken) -> str:
    return (await source.token()).reveal().decode()


async def test_sessions_of_one_identity_share_one_login(server: Server, table: Identities) -> None:
    first, second, other = join(table, server), join(table, server), join(table, server, b"other")

    assert await token(first) == await token(second) == "s.1"
    assert await token(other) == "s.2"


async def test_500_reads_that_find_the_token_expired_make_one_login(server: Server, table: Identities) -> None:
    server.renewable, server.delay = False, 1.0
    source = join(table, server)
    waiting = asyncio.create_task(token(source))
    await server.clock.advance(1)
    assert await waiting == "s.1"
    await server.clock.advance(3601)

    reads = [asyncio.create_task(token(source)) for _ in range(500)]
    await server.clock.advance(1)

    assert set(await asyncio.gather(*reads)) == {"s.2"}
    assert server.logins == 2


async def test_a_read_that_is_cancelled_does_not_take_the_login_from_the_others(
    server: Server, table: Identities
) -> None:
    server.delay = 1.0
    source = join(table, server)
    first, second = asyncio.create_task(token(source)), asyncio.create_task(token(source))
    await server.clock.settle()

    first.cancel()
    await server.clock.advance(1)

    assert await second == "s.1"
    assert server.logins == 1


async def test_a_renewable_token_is_renewed_without_any_read(server: Server, table: Identities) -> None:
    source = join(table, server)
    await token(source)

    await server.clock.advance(24 * 3600)

    assert server.renewals == 24
    assert await token(source) == "s.1"
    assert server.logins == 1
    await source.close()


async def test_a_token_is_replaced_when_its_maximum_life_ends(server: Server, table: Identities) -> None:
    server.longest = 5000.0
    source = join(table, server)
    await token(source)

    await server.clock.advance(4950)
    used = [await token(source) for _ in range(2)]
    await server.clock.settle()

    assert used == ["s.1", "s.1"]  # still valid: no call waits
    assert await token(source) == "s.2"
    assert server.logins == 2
    await source.close()


async def test_a_token_that_cannot_be_renewed_is_replaced_a_minute_before_it_ends(
    server: Server, table: Identities
) -> None:
    server.renewable = False
    source = join(table, server)
    await token(source)

    await server.clock.advance(3539)
    await token(source)
    await server.clock.settle()
    assert server.logins == 1
    await server.clock.advance(2)
    await token(source)
    await server.clock.settle()

    assert server.logins == 2
    assert server.renewals == 0


async def test_a_token_that_never_expires_is_never_renewed(server: Server, table: Identities) -> None:
    server.ttl = math.inf
    source = join(table, server)
    await token(source)

    await server.clock.advance(10**7)

    assert await token(source) == "s.1"
    assert (server.logins, server.renewals) == (1, 0)


async def test_a_revoked_token_means_one_new_login_for_all_reads(server: Server, table: Identities) -> None:
    source = join(table, server)
    lost = await source.token()
    server.ends.clear()

    fresh = await asyncio.gather(*(source.renewed(lost) for _ in range(500)))

    assert {each.reveal() for each in fresh if each is not None} == {b"s.2"}
    assert (server.logins, server.lookups) == (2, 1)


async def test_a_login_that_failed_because_the_server_was_down_is_tried_again_at_once(
    server: Server, table: Identities
) -> None:
    source = join(table, server)
    lost = await source.token()
    server.ends.clear()
    server.problem = unavailable("down")
    with pytest.raises(ProviderError):
        await source.renewed(lost)
    server.problem = None

    fresh = await source.renewed(lost)

    assert fresh is not None
    assert fresh.reveal() == b"s.3"


async def test_denials_with_a_valid_token_cause_ever_fewer_logins(server: Server, table: Identities) -> None:
    source = join(table, server)
    await source.token()

    for _ in range(600):
        await server.clock.advance(1)
        await source.renewed(await source.token())

    assert server.logins <= 6
    assert server.lookups <= 600 / 10 + 6
    await source.close()


async def test_a_token_lost_soon_after_a_denial_is_replaced_within_seconds(server: Server, table: Identities) -> None:
    source = join(table, server)
    await server.clock.advance(0)
    denied = await source.token()
    assert await source.renewed(denied) is None
    server.ends.clear()

    await server.clock.advance(11)
    fresh = await source.renewed(denied)

    assert fresh is not None
    assert fresh.reveal() == b"s.2"


async def test_the_last_session_revokes_the_token(server: Server, table: Identities) -> None:
    first, second = join(table, server), join(table, server)
    await token(first)

    await first.close()
    assert server.revoked == []
    await second.close()

    assert server.revoked == ["s.1"]
    assert len(table) == 0


async def test_a_static_token_is_renewed_but_neither_replaced_nor_revoked(server: Server, table: Identities) -> None:
    source = table.join(b"key", ScriptedLogin(server, owns_tokens=False))
    held = await source.token()

    await server.clock.advance(7200)
    refused = await source.renewed(held)
    await source.close()

    assert refused is None
    assert server.renewals == 2
    assert (server.logins, server.lookups, server.revoked) == (1, 1, [])


async def test_a_static_token_that_a_lease_depends_on_is_looked_up_at_once(server: Server, table: Identities) -> None:
    source = table.join(b"key", ScriptedLogin(server, owns_tokens=False))
    held = await source.identity.held()

    assert await source.identity.extend(held, 7200) >= 7200
    assert (server.lookups, server.renewals) == (1, 1)
    await source.close()


async def test_a_new_login_uses_the_newest_sessions_credentials(server: Server, table: Identities) -> None:
    old = ScriptedLogin(server, b"old")
    first = table.join(b"key", old)
    lost = await first.token()
    second = table.join(b"key", ScriptedLogin(server, b"new"))
    await first.close()
    old.closed = True
    server.ends.clear()

    fresh = await second.renewed(lost)

    assert fresh is not None
    assert fresh.reveal() == b"s.2"


async def test_a_token_with_leases_is_extended_and_not_revoked(server: Server, table: Identities) -> None:
    server.ttl = 60.0
    source = join(table, server)
    held = await source.identity.held()

    assert await source.identity.extend(held, 7200) >= 7200
    await source.close()

    assert server.revoked == []
    assert server.ends["s.1"] >= 7200


async def test_a_renewal_never_shortens_the_life_that_a_lease_needs(server: Server, table: Identities) -> None:
    server.ttl = 60.0
    source = join(table, server)
    held = await source.identity.held()
    await source.identity.extend(held, 7200)

    await server.clock.advance(7000)

    assert server.ends["s.1"] >= 7200
    await source.close()


async def test_a_token_that_cannot_outlive_a_lease_says_so(server: Server, table: Identities) -> None:
    server.longest = 4000.0
    source = join(table, server)
    held = await source.identity.held()

    assert await source.identity.extend(held, 7200) == pytest.approx(4000, abs=1)
    await source.close()


@pytest.mark.parametrize(
    ("pauses", "most"),
    [pytest.param(Pauses(), 20, id="any method"), pytest.param(PASSWORD_PAUSES, 5, id="passwords: no lockout")],
)
async def test_refused_logins_are_repeated_ever_more_rarely(
    server: Server, table: Identities, pauses: Pauses, most: int
) -> None:
    server.problem = rejected("no")

    for _ in range(900):
        source = table.join(b"key", ScriptedLogin(server, pauses=pauses))  # the SDK forgets rejected sessions
        with pytest.raises(ProviderError) as caught:
            await source.token()
        assert caught.value.message == "no"
        await source.close()
        await server.clock.advance(1)

    assert server.logins <= most
    assert caught.value.retry_after >= 1


async def test_corrected_credentials_log_in_at_once(server: Server, table: Identities) -> None:
    server.problem = rejected("no")
    with pytest.raises(ProviderError):
        await join(table, server, proof=b"wrong").token()
    server.problem = None

    assert await token(join(table, server, proof=b"right")) == "s.2"


async def test_a_server_that_is_down_is_not_held_against_the_credentials(server: Server, table: Identities) -> None:
    server.problem = unavailable("down")
    source = join(table, server)
    with pytest.raises(ProviderError):
        await source.token()
    server.problem = None

    assert await token(source) == "s.2"
