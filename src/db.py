"""The face that the documented smoke test imports: `import db` from `src/`. Nothing is read or opened on import."""

from doc_rag import smoke
from doc_rag.smoke import embed_texts, get_connection, get_voyage_client

EMBED_MODEL: str
EMBED_DIM: int | None

__all__ = ["EMBED_DIM", "EMBED_MODEL", "embed_texts", "get_connection", "get_voyage_client"]


def __getattr__(name: str) -> object:
    if name == "EMBED_MODEL":
        return smoke.embed_model()
    if name == "EMBED_DIM":
        return smoke.embed_dim()
    raise AttributeError(f"module 'db' has no attribute '{name}'")
