"""Azure OpenAI: OpenAI's API behind a deployment's own address, with an `api-key` header and an API version."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from doc_rag.embed.api import check_key, host_of
from doc_rag.embed.failures import CallFailed
from doc_rag.embed.openai import OpenAIApi
from doc_rag.errors import MissingKeyError
from doc_rag.records import ModelIdentity
from doc_rag.setting_values import Secret

if TYPE_CHECKING:
    import openai

PROVIDER = "azure-openai"


class AzureOpenAIApi(OpenAIApi):
    """One deployment. `identity.model` is its name: the API never takes the model's."""

    def __init__(
        self, key: Secret | None, endpoint: str | None, deployment: str | None, api_version: str
    ) -> None:
        super().__init__(key, None, deployment or "")
        self._endpoint = resource_url(endpoint) if endpoint else None
        self._deployment = deployment
        self._api_version = api_version
        self.identity = ModelIdentity(
            PROVIDER, host_of("AZURE_OPENAI_ENDPOINT", self._endpoint), deployment or ""
        )

    @property
    def is_self_hosted(self) -> bool:
        return False

    def require_key(self) -> None:
        needed = {
            "AZURE_OPENAI_ENDPOINT": self._endpoint,
            "AZURE_OPENAI_API_KEY": self._key,
            "AZURE_OPENAI_EMBED_DEPLOYMENT": self._deployment,
        }
        missing = [name for name, value in needed.items() if not value]
        if missing:
            raise MissingKeyError(
                f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set; Azure OpenAI needs "
                "an endpoint, a key and the name of an embedding deployment."
            )
        assert self._key is not None
        check_key("AZURE_OPENAI_API_KEY", self._key)

    def _make_client(self) -> openai.OpenAI:
        import openai

        assert self._endpoint is not None
        return openai.AzureOpenAI(
            api_key=self._secret(),
            azure_endpoint=self._endpoint,
            azure_deployment=self._deployment,
            api_version=self._api_version,
            max_retries=0,
        )

    def remedy(self, failure: CallFailed) -> str:
        deployment, version = self._deployment, self._api_version
        if failure.status in (401, 403):
            return "Azure does not accept AZURE_OPENAI_API_KEY for AZURE_OPENAI_ENDPOINT. Set the resource's own key."
        if failure.status == 404:
            return (
                f"Check AZURE_OPENAI_EMBED_DEPLOYMENT ({deployment}: a deployment's name, not a model's), then "
                f"AZURE_OPENAI_ENDPOINT and AZURE_OPENAI_API_VERSION ({version})."
            )
        if failure.status == 429:
            return "The subscription's quota is used up: raise it in Azure."
        if "version" in failure.reason.lower():
            return f"Check AZURE_OPENAI_API_VERSION ({version})."
        if "dimension" in failure.reason.lower():
            return "Unset RAG_EMBED_DIM: the deployed model takes no other dimension than its own."
        return "Trying again would not help."


def resource_url(endpoint: str) -> str:
    """The resource's address. The portal also shows longer ones (".../openai/deployments/..."): cut there."""
    parts = urlsplit(endpoint)
    return f"{parts.scheme}://{parts.netloc}{parts.path.partition('/openai')[0]}".rstrip("/")
