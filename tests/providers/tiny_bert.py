"""A tiny BERT sentence-transformers folder with seeded weights: another model for RAG_LOCAL_MODEL_DIR."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

SIZE, INNER, LAYERS, HEADS, POSITIONS, MAX_TOKENS = 32, 64, 2, 4, 40, 24
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
VOCABULARY = (*SPECIAL, "wing", "flow", "heat", "jet", "plate", "the", "of", "a", "##s", "##ing")
CONFIG: dict[str, object] = {
    "model_type": "bert",
    "hidden_act": "gelu",
    "hidden_size": SIZE,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": INNER,
    "max_position_embeddings": POSITIONS,
    "layer_norm_eps": 1e-12,
    "type_vocab_size": 2,
    "vocab_size": len(VOCABULARY),
}


def tiny_tensors(seed: int = 7) -> dict[str, NDArray[np.float32]]:
    """Tensors by name, the same for a seed wherever numpy's PCG64 runs."""
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (len(VOCABULARY), SIZE),
        "embeddings.position_embeddings.weight": (POSITIONS, SIZE),
        "embeddings.token_type_embeddings.weight": (2, SIZE),
    }
    norms = ["embeddings.LayerNorm"]
    for prefix in (f"encoder.layer.{i}." for i in range(LAYERS)):
        for name, rows, columns in (
            ("attention.self.query", SIZE, SIZE),
            ("attention.self.key", SIZE, SIZE),
            ("attention.self.value", SIZE, SIZE),
            ("attention.output.dense", SIZE, SIZE),
            ("intermediate.dense", INNER, SIZE),
            ("output.dense", SIZE, INNER),
        ):
            shapes[f"{prefix}{name}.weight"] = (rows, columns)
            shapes[f"{prefix}{name}.bias"] = (rows,)
        norms += [f"{prefix}attention.output.LayerNorm", f"{prefix}output.LayerNorm"]
    for norm in norms:
        shapes[f"{norm}.weight"] = shapes[f"{norm}.bias"] = (SIZE,)
    rng = np.random.default_rng(seed)
    return {
        name: (rng.standard_normal(shape) * 0.5).astype(np.float32) for name, shape in sorted(shapes.items())
    }


def write_tiny_bert(folder: Path, *, pooling: str = "cls", seed: int = 7, **config: object) -> Path:
    """Write the folder and return it. `config` overrides fields of config.json."""
    from safetensors.numpy import save_file
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG | config))
    steps = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
    modules = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in steps]
    (folder / "modules.json").write_text(json.dumps(modules))
    modes = {f"pooling_mode_{name}": name.startswith(pooling) for name in ("cls_token", "mean_tokens")}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": SIZE} | modes))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": MAX_TOKENS}))
    save_file(tiny_tensors(seed), folder / "model.safetensors")
    vocabulary = {word: k for k, word in enumerate(VOCABULARY)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder
