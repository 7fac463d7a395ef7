"""What operating the server takes beside serving: `.env`, `.mcp.json`, backups, the doctor, the health check.

Each module has `main(argv) -> int` and runs as `python -m doc_rag.ops.NAME`. `env_file`, `auth_token`,
`compose_env` and `healthcheck` import the standard library alone, so that `make up` works on a machine
with Docker and any Python 3.9.
"""
