"""An MCP server without tools, to measure what the SDK and the network cost by themselves. Arguments: the port."""

from __future__ import annotations

import sys

from mcp.server import MCPServer


def main() -> None:
    MCPServer("empty", log_level="ERROR").run(
        "streamable-http", host="127.0.0.1", port=int(sys.argv[1]), stateless_http=True
    )


if __name__ == "__main__":
    main()
