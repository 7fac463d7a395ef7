"""The container's health check: one GET of /healthz, by the standard library, in a few milliseconds.

Asks the loopback address inside the container, so it needs no token and leaves nothing in the network.
"""

from __future__ import annotations

import http.client
import os
import sys
from collections.abc import Sequence

TIMEOUT_SECONDS = 4.0
"""Below the check's own limit in the Dockerfile, so that the reason is recorded and not only the kill."""


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status 0 where /healthz answers 200 on RAG_PORT (8743), else 1 with the reason on stderr."""
    port = int(os.environ.get("RAG_PORT") or "8743")
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_SECONDS)
    try:
        connection.request("GET", "/healthz")
        status = connection.getresponse().status
    except OSError as error:
        print(f"port {port} does not answer: {error}", file=sys.stderr)
        return 1
    except http.client.HTTPException as error:
        print(f"port {port} answers, but not in HTTP: {error!r}", file=sys.stderr)
        return 1
    finally:
        connection.close()
    if status != http.client.OK:
        print(f"/healthz answered {status}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
