"""doc-rag-mcp: a folder of documents as a searchable knowledge base over the Model Context Protocol."""

__version__ = "0.1.0"
