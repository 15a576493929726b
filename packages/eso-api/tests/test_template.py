"""Templates: the objects that contain them."""

from __future__ import annotations

from eso_api.template import (
    Template,
    TemplateFrom,
    TemplateItem,
    TemplateReferences,
    TemplateSource,
    template_references,
)


def test_objects_that_must_be_read_before_rendering_are_named() -> None:
    entry = TemplateFrom(
        config_map=TemplateSource(name="shared", items=[TemplateItem(key="app.conf")]),
        secret=TemplateSource(name="hidden", items=[TemplateItem(key="token")]),
        literal="in the entry",
    )

    named = template_references(Template(template_from=[entry]))

    assert named == TemplateReferences(config_maps=frozenset({"shared"}), secrets=frozenset({"hidden"}))


def test_without_a_template_no_object_is_named() -> None:
    assert template_references(None) == TemplateReferences(frozenset(), frozenset())
