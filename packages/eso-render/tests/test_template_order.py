"""The sources of templates and their rendering order."""

from __future__ import annotations

import pytest

from eso_api.template import Template, TemplateFrom, TemplateItem, TemplateMetadata, TemplateSource
from eso_api.values import SecretBytes
from eso_render.errors import TargetError
from eso_render.templates import MANIFEST_ORDER, SECRET_ORDER, Scope, TemplateObjects, TemplateReader, pieces

OBJECTS = TemplateObjects(
    config_maps={"shared": {"app.conf": "from the ConfigMap"}},
    secrets={"hidden": {"token": SecretBytes(b"from the Secret"), "binary": SecretBytes(b"\xff")}},
)
EVERYWHERE = TemplateFrom(
    config_map=TemplateSource(name="shared", items=[TemplateItem(key="app.conf")]),
    secret=TemplateSource(name="hidden", items=[TemplateItem(key="token", template_as="KeysAndValues")]),
    literal="from the entry",
)


def one(entry: TemplateFrom) -> Template:
    return Template(template_from=[entry])


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        pytest.param(SECRET_ORDER, ["app.conf", "token", "templateFrom[0].literal"], id="a Secret: ConfigMap first"),
        pytest.param(MANIFEST_ORDER, ["templateFrom[0].literal", "app.conf", "token"], id="other kinds: literal first"),
    ],
)
def test_all_sources_of_an_entry_are_used_in_order(order: tuple[TemplateReader, ...], expected: list[str]) -> None:
    found = list(pieces(one(EVERYWHERE), OBJECTS, order))

    assert [piece.key for piece in found] == expected


def test_templates_come_in_the_order_in_which_later_ones_win() -> None:
    template = Template(
        metadata=TemplateMetadata(labels={"l": ""}, annotations={"a": ""}),
        data={"d2": "", "d1": ""},
        template_from=[TemplateFrom(literal="x: 1"), TemplateFrom(literal="y: 1", target="Labels")],
    )

    found = list(pieces(template, OBJECTS, SECRET_ORDER))

    assert [(piece.key, piece.target) for piece in found] == [
        ("templateFrom[0].literal", "Data"),
        ("templateFrom[1].literal", "Labels"),
        ("d1", "Data"),
        ("d2", "Data"),
        ("l", "Labels"),
        ("a", "Annotations"),
    ]


def test_a_literal_gives_keys_and_values_and_an_item_what_it_says() -> None:
    found = {piece.key: piece.scope for piece in pieces(one(EVERYWHERE), OBJECTS, SECRET_ORDER)}

    assert found == {
        "app.conf": Scope.VALUES,
        "token": Scope.KEYS_AND_VALUES,
        "templateFrom[0].literal": Scope.KEYS_AND_VALUES,
    }


def test_every_piece_knows_where_it_stands() -> None:
    found = {piece.key: piece.path for piece in pieces(one(EVERYWHERE), OBJECTS, SECRET_ORDER)}

    assert found["templateFrom[0].literal"].field == ("templateFrom", 0, "literal")
    assert found["app.conf"].field == ("templateFrom", 0, "configMap", "items", 0)
    assert (found["app.conf"].kind, found["app.conf"].name, found["app.conf"].key) == (
        "ConfigMap",
        "shared",
        "app.conf",
    )


def test_a_template_does_not_show_up_in_a_dump_of_its_piece() -> None:
    shown = repr(list(pieces(one(EVERYWHERE), OBJECTS, SECRET_ORDER))) + repr(OBJECTS)

    assert "from the" not in shown


def source(name: str, key: str, template_as: str = "Values") -> TemplateSource:
    return TemplateSource(name=name, items=[TemplateItem(key=key, template_as=template_as)])


@pytest.mark.parametrize(
    ("template", "message"),
    [
        pytest.param(one(TemplateFrom(config_map=source("none", "k"))), "ConfigMap none", id="T7: no such ConfigMap"),
        pytest.param(one(TemplateFrom(secret=source("none", "k"))), "Secret none", id="T7: no such Secret"),
        pytest.param(one(TemplateFrom(config_map=source("shared", "k"))), "no key k", id="T7: no such key"),
        pytest.param(one(TemplateFrom(secret=source("hidden", "k"))), "no key k", id="T7: no such key of a Secret"),
        pytest.param(
            one(TemplateFrom(config_map=source("shared", "app.conf", "Lines"))), "Lines is unknown", id="unknown scope"
        ),
        pytest.param(Template(engine_version="v1"), "unsupported template engine version", id="another engine"),
    ],
)
def test_a_missing_template_source_is_an_error_that_names_it(template: Template, message: str) -> None:
    with pytest.raises(TargetError) as refused:
        list(pieces(template, OBJECTS, SECRET_ORDER))

    assert message in str(refused.value)
