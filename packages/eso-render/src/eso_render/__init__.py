"""Templates of ExternalSecrets and PushSecrets -> the data they stand for."""

from eso_render.engine import Renderer, render_text
from eso_render.errors import RenderError

__all__ = ["RenderError", "Renderer", "render_text"]
