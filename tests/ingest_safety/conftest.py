"""The fixtures of the service's tests serve here too."""

from tests.service.conftest import docs, make_kb

__all__ = ["docs", "make_kb"]
