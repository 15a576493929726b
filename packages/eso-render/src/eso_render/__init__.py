"""Render the templates of ExternalSecrets and PushSecrets to data."""

from eso_render.engine import Renderer, render_text
from eso_render.errors import RenderError

__all__ = ["RenderError", "Renderer", "render_text"]
