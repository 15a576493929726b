"""A complete provider: notes in a folder, one file a note, behind a password. `python notes.py --help` runs it."""  # noqa: INP001 - an example, no package

from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote, unquote

from eso_api.references import SecretKeySelector
from eso_api.shapes import Fragment
from eso_api.values import SecretBytes
from eso_sdk import Provider, Store, errors, finds, reads, store_kind
from eso_sdk.extract import property_in, pushed_value
from eso_sdk.main import run
from eso_sdk.matching import Matcher
from eso_wire.values import DeleteItem, FindQuery, Found, PushItem, PushOutcome, RemoteRef, SourceSecret


class NotesConfig(Fragment, frozen=True, kw_only=True):
    """Notes in a folder."""

    folder: str
    """Where the notes are."""
    password_ref: SecretKeySelector
    """The password of the folder."""


@store_kind(kind="Notes", plural="notes", cluster="ClusterNotes")
class Notes(Store[NotesConfig]):
    async def open(self) -> None:
        self.folder = Path(self.config.folder)
        if self.secret(self.config.password_ref) != SecretBytes((self.folder / "password").read_bytes()):
            raise errors.rejected("the folder has another password")

    @reads("not_found")
    async def get(self, ref: RemoteRef) -> bytes:
        if not (note := self._note(ref.key)).is_file():
            raise errors.not_found(ref.key)
        return property_in(note.read_bytes(), ref)

    @finds("name")
    async def find(self, query: FindQuery) -> AsyncIterator[Found]:
        for note in self.folder.glob("*.txt"):
            if Matcher(query).matches(key := unquote(note.stem)):
                yield Found(key, SecretBytes(note.read_bytes()))

    async def push(self, item: PushItem, _: SourceSecret) -> PushOutcome:
        self._note(item.remote.key).write_bytes(pushed_value(item))
        return PushOutcome.UPDATED

    async def delete(self, item: DeleteItem) -> bool:
        if existed := (note := self._note(item.remote.key)).is_file():
            note.unlink()
        return existed

    def _note(self, key: str) -> Path:
        return self.folder / f"{quote(key, safe='')}.txt"


PROVIDER = Provider(name="notes", version="1.0.0", kinds=(Notes,))
if __name__ == "__main__":
    raise SystemExit(run(PROVIDER))
