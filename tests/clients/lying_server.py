"""An MCP server over stdio whose one tool breaks its own output schema.

What it is for: a client that checks structured content must refuse this answer. If it does not, its
silence about our answers shows nothing.
"""

from __future__ import annotations

import json
import sys
from typing import Any

TOOL = {
    "name": "count",
    "description": "Count.",
    "inputSchema": {"type": "object"},
    "outputSchema": {
        "type": "object",
        "properties": {"count": {"type": "integer"}},
        "required": ["count"],
    },
}
REVISION = "2026-07-28"


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    """The result, or None for a method that is not served."""
    server = {"name": "lying", "version": "1"}
    if method == "initialize":
        revision = params["protocolVersion"]
        return {"protocolVersion": revision, "capabilities": {"tools": {}}, "serverInfo": server}
    extra = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    if method == "server/discover":
        known = {"supportedVersions": [REVISION], "capabilities": {"tools": {}}, "serverInfo": server}
        return known | extra
    if method == "tools/list":
        return {"tools": [TOOL]} | extra
    if method == "tools/call":
        content = [{"type": "text", "text": "many"}]
        return {"content": content, "structuredContent": {"count": "many"}} | extra
    return None


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        result = answer(message["method"], message.get("params", {}))
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        reply |= {"result": result} if result else {"error": {"code": -32601, "message": "Method not found"}}
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
