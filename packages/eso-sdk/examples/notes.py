"""A complete provider: notes in a folder, one file a note, behind a password. `python notes.py --help` runs it."""  # noqa: INP001 - an example, no package

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote, unquote

from eso_sdk import (
    DeleteItem,
    FindQuery,
    Found,
    Fragment,
    Matcher,
    Provider,
    PushItem,
    PushOutcome,
    RemoteRef,
    SecretBytes,
    SecretKeySelector,
    SourceSecret,
    Store,
    errors,
    finds,
    property_in,
    pushed_value,
    reads,
    run,
    store_kind,
)

WRITING = threading.Lock()  # two stores may name the same folder


class NotesConfig(Fragment, frozen=True, kw_only=True):
    """Notes in a folder."""

    folder: str
    """Where the notes are."""
    password_ref: SecretKeySelector
    """The password of the folder."""


@store_kind(kind="Notes", plural="notes", cluster="ClusterNotes")
class Notes(Store[NotesConfig]):
    """Files block, so each method works in a thread: all calls of the process share one event loop."""

    async def open(self) -> None:
        self.folder = Path(self.config.folder)
        try:
            password = await asyncio.to_thread((self.folder / "password").read_bytes)
        except FileNotFoundError:
            raise errors.invalid_config("/folder", 'has no file "password"') from None
        if self.secret(self.config.password_ref) != SecretBytes(password):
            raise errors.rejected("the folder has another password")

    @reads("not_found")
    async def get(self, ref: RemoteRef) -> bytes:
        if ref.version:
            raise errors.version_not_found(ref.key, ref.version)
        try:
            raw = await asyncio.to_thread(self._note(ref.key).read_bytes)
        except FileNotFoundError:
            raise errors.not_found(ref.key) from None
        return await property_in(raw, ref)

    @finds("name")
    async def find(self, query: FindQuery) -> AsyncIterator[Found]:
        matcher = Matcher(query)
        for note in await asyncio.to_thread(lambda: sorted(self.folder.glob("*.txt"))):
            if await matcher.accepts(key := unquote(note.stem)):
                yield Found(key, SecretBytes(await asyncio.to_thread(note.read_bytes)))

    async def push(self, item: PushItem, _: SourceSecret) -> PushOutcome:
        return await asyncio.to_thread(self._push, item, pushed_value(item))

    async def delete(self, item: DeleteItem) -> bool:
        return await asyncio.to_thread(self._delete, item)

    def _push(self, item: PushItem, value: bytes) -> PushOutcome:
        note = self._note(item.remote.key)
        with WRITING:
            if existed := self._is_ours(item):
                if note.read_bytes() == value:
                    return PushOutcome.UNCHANGED
            else:
                note.with_suffix(".owner").write_text(item.owner_token, encoding="utf-8")
            note.with_suffix(".new").write_bytes(value)
            note.with_suffix(".new").replace(note)  # a reader sees the old value or the new one, never a part
        return PushOutcome.UPDATED if existed else PushOutcome.CREATED

    def _delete(self, item: DeleteItem) -> bool:
        note = self._note(item.remote.key)
        with WRITING:
            if existed := self._is_ours(item):
                note.unlink()
                note.with_suffix(".owner").unlink()
        return existed

    def _is_ours(self, item: PushItem | DeleteItem) -> bool:
        """Tell whether the note exists. Refuse one that does not carry our mark."""
        if item.remote.property:
            raise errors.invalid_request(f'"{item.remote.key}" is one value; leave out the property')
        if not (note := self._note(item.remote.key)).is_file():
            return False
        mark = note.with_suffix(".owner")
        if not mark.is_file() or mark.read_text(encoding="utf-8") != item.owner_token:
            raise errors.not_ours(item.remote.key)
        return True

    def _note(self, key: str) -> Path:
        return self.folder / f"{quote(key, safe='')}.txt"


PROVIDER = Provider(name="notes", version="1.0.0", kinds=(Notes,))
if __name__ == "__main__":
    raise SystemExit(run(PROVIDER))
