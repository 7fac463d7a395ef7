"""What stands between the network and the MCP app: one pure ASGI class a file, each with one reason to say no.

Outermost first: `requests` (an id, one log line, no traceback to a client), `hosts`, then on /mcp alone `auth`,
`bodies`, `accept`, `sessions`.
"""
