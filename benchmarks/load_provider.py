"""A wire-true OpenAI server in a process of its own, so that it does not share the driver's interpreter.

Prints the variables that point doc-rag at it as JSON, and ends with its stdin. Started by `benchmarks.load_servers`.
"""

from __future__ import annotations

import json
import sys

from tests.providers.servers import OpenAIServer

DIMS = 64


def main() -> None:
    with OpenAIServer(models={"load-model": DIMS}) as server:
        print(json.dumps(server.environ()), flush=True)
        sys.stdin.buffer.read()


if __name__ == "__main__":
    main()
