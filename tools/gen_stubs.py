"""Python stubs of the wire contract: proto/ -> packages/eso-wire/src/eso_wire/_generated.

`gen_stubs.py` writes them; `gen_stubs.py --check` fails when they are not what the contract says.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parents[1]
PROTO = ROOT / "proto" / "externalsecrets" / "provider" / "v2alpha1" / "provider.proto"
TARGET = ROOT / "packages" / "eso-wire" / "src" / "eso_wire" / "_generated"
STUBS = ("provider_pb2.py", "provider_pb2.pyi", "provider_pb2_grpc.py", "provider_pb2_grpc.pyi")


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        fresh = {name: (Path(folder) / name).read_text(encoding="utf-8") for name in STUBS}
    if "--check" in sys.argv[1:]:
        stale = [name for name, text in fresh.items() if current(name) != text]
        if stale:
            print(f"not what {PROTO.relative_to(ROOT)} says: {', '.join(stale)}; run `make gen`")
        return 1 if stale else 0
    for name, text in fresh.items():
        (TARGET / name).write_text(text, encoding="utf-8")
    return 0


def generate(folder: Path) -> None:
    """Write the stubs into the folder, with the imports of a package's own module."""
    well_known = Path(protoc.__file__).parent / "_proto"
    arguments = ["protoc", f"-I{PROTO.parent}", f"-I{well_known}", f"--python_out={folder}", f"--mypy_out={folder}"]
    arguments += [f"--grpc_python_out={folder}", f"--mypy_grpc_out={folder}"]
    plugins = Path(sys.executable).parent
    arguments += [f"--plugin={name}={plugins / name}" for name in ("protoc-gen-mypy", "protoc-gen-mypy_grpc")]
    arguments.append(PROTO.name)
    if protoc.main(arguments) != 0:
        raise SystemExit(f"protoc refused {PROTO}")
    for name in ("provider_pb2_grpc.py", "provider_pb2_grpc.pyi"):
        stub = folder / name
        text = stub.read_text(encoding="utf-8")
        text = text.replace("import provider_pb2 as", "from eso_wire._generated import provider_pb2 as")
        text = text.replace("import provider_pb2\n", "from eso_wire._generated import provider_pb2\n")
        stub.write_text(text, encoding="utf-8")


def current(name: str) -> str:
    path = TARGET / name
    return path.read_text(encoding="utf-8") if path.exists() else ""


if __name__ == "__main__":
    sys.exit(main())
