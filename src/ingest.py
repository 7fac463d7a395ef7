"""`python src/ingest.py --docs PATH --collection NAME`: see `doc-rag ingest --help`."""

import sys

from doc_rag.cli import ingest_main

if __name__ == "__main__":
    sys.exit(ingest_main())
