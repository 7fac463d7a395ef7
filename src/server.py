"""`python src/server.py --transport stdio|http --host --port`: the serve command, from anywhere."""

import sys

from doc_rag.cli import serve_main

if __name__ == "__main__":
    sys.exit(serve_main())
