"""`eso render -f FOLDER`: every manifest in it and below it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from eso_cli.render import RENDERED, UNUSABLE, RenderOptions, run

Printed = pytest.CaptureFixture[str]

SECRET = """\
apiVersion: external-secrets.io/v1
kind: ExternalSecret
metadata: {name: db, namespace: app}
spec:
  target:
    template:
      data:
        url: "{{ .user }}@db"
"""
VALUES = "user: ada\n"


def test_a_folder_is_read_with_its_subfolders(tmp_path: Path, capsys: Printed) -> None:
    for place in ("app/db", ".git"):
        (tmp_path / place).mkdir(parents=True)
    (tmp_path / "app/one.yaml").write_text(SECRET.replace("name: db", "name: one"))
    (tmp_path / "app/db/two.yml").write_text(SECRET.replace("name: db", "name: two"))
    (tmp_path / "app/values.yaml").write_text(VALUES)
    (tmp_path / ".git/three.yaml").write_text(SECRET)

    code = run(RenderOptions(str(tmp_path), str(tmp_path / "app/values.yaml")))

    assert (code, [each["metadata"]["name"] for each in yaml.safe_load_all(capsys.readouterr().out)]) == (
        RENDERED,
        ["one", "two"],
    )


def test_a_broken_file_in_a_folder_is_named_with_its_line(tmp_path: Path, capsys: Printed) -> None:
    (tmp_path / "good.yaml").write_text(SECRET.replace("name: db", "name: one"))
    (tmp_path / "broken.yaml").write_text("a: b\n  c: d\n")

    assert run(RenderOptions(str(tmp_path))) == UNUSABLE
    assert capsys.readouterr().err.startswith(f"{tmp_path}/broken.yaml:2: ")
