"""Values to protobuf messages and back.

    to_*     value -> message, before sending
    from_*   message -> value; raises a ProviderError that names the field, never its content

Pure functions; one module for each group of calls. A message must never be printed (protobuf shows its content), so it
exists only between these functions and the stub.
"""

from __future__ import annotations

from eso_wire.codec.context import from_close_request, from_context, to_close_request, to_context
from eso_wire.codec.errors import from_error, to_error
from eso_wire.codec.generating import (
    from_cleanup_request,
    from_cleanup_response,
    from_generate_request,
    from_generate_response,
    to_cleanup_request,
    to_cleanup_response,
    to_generate_request,
    to_generate_response,
)
from eso_wire.codec.negotiation import from_handshake, from_hello, to_handshake, to_hello
from eso_wire.codec.reading import (
    from_check_request,
    from_check_response,
    from_find_page,
    from_find_request,
    from_get_request,
    from_get_response,
    to_check_request,
    to_check_response,
    to_find_page,
    to_find_request,
    to_get_request,
    to_get_response,
)
from eso_wire.codec.subscribing import (
    from_subscribe_request,
    from_subscribe_response,
    to_subscribe_request,
    to_subscribe_response,
)
from eso_wire.codec.validating import (
    from_validate_request,
    from_validate_response,
    to_validate_request,
    to_validate_response,
)
from eso_wire.codec.writing import (
    from_delete_request,
    from_delete_response,
    from_push_request,
    from_push_response,
    to_delete_request,
    to_delete_response,
    to_push_request,
    to_push_response,
)

__all__ = [
    "from_check_request",
    "from_check_response",
    "from_cleanup_request",
    "from_cleanup_response",
    "from_close_request",
    "from_context",
    "from_delete_request",
    "from_delete_response",
    "from_error",
    "from_find_page",
    "from_find_request",
    "from_generate_request",
    "from_generate_response",
    "from_get_request",
    "from_get_response",
    "from_handshake",
    "from_hello",
    "from_push_request",
    "from_push_response",
    "from_subscribe_request",
    "from_subscribe_response",
    "from_validate_request",
    "from_validate_response",
    "to_check_request",
    "to_check_response",
    "to_cleanup_request",
    "to_cleanup_response",
    "to_close_request",
    "to_context",
    "to_delete_request",
    "to_delete_response",
    "to_error",
    "to_find_page",
    "to_find_request",
    "to_generate_request",
    "to_generate_response",
    "to_get_request",
    "to_get_response",
    "to_handshake",
    "to_hello",
    "to_push_request",
    "to_push_response",
    "to_subscribe_request",
    "to_subscribe_response",
    "to_validate_request",
    "to_validate_response",
]
