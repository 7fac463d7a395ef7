# mypy: ignore-errors
"""Make local_reference.json: what torch and transformers say the `local` vectors are.

Run once, by hand, in a virtual environment of its own (torch and transformers are no dependency):
    pip install torch==2.13.0 transformers tokenizers safetensors
    PYTHONPATH=. python tests/providers/make_reference.py FOLDER_OF_ALL_MINILM_L6_V2
"""

import base64
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import BertModel

from tests.providers.tiny_bert import write_tiny_bert

LONG = " ".join(
    f"Section {n}: the pressure coefficient of wing {n} was measured at Mach {n}." for n in range(60)
)
TEXTS = [
    "What is a boundary layer?",
    "The lift coefficient of a delta wing rises with its angle of attack until vortex breakdown.",
    "def embed(texts: list[str]) -> np.ndarray:\n    return model.encode(texts, normalize=True)",
    "Größe, Façade, naïve café — Ελληνικά и русский текст 😀",
    "東京都の天気は晴れ。检索增强生成",
    "a",
    "",
    "x" * 150 + " [SEP] supercalifragilisticexpialidocious 3.14159e-10",
    LONG,
]
TINY_TEXTS = ["wings of the jet", "the heating of a plate", "flow " * 30]


def reference(folder, texts, pooling, max_tokens, truncate):
    model = BertModel.from_pretrained(folder, attn_implementation="eager").eval()
    tokenizer = Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    vectors = []
    for text in texts:
        ids = tokenizer.encode(text).ids
        parts = [ids]
        if len(ids) > max_tokens:
            inner = np.array(ids[1:-1])
            count = -(-len(inner) // (max_tokens - 2))
            cut = [inner[: max_tokens - 2]] if truncate else np.array_split(inner, count)
            parts = [[ids[0], *part.tolist(), ids[-1]] for part in cut]
        total = 0
        for part in parts:
            with torch.no_grad():
                states = model(input_ids=torch.tensor([part])).last_hidden_state[0]
            vector = states[0] if pooling == "cls" else states.mean(0)
            total = total + len(part) * torch.nn.functional.normalize(vector, dim=0)
        vectors.append(torch.nn.functional.normalize(total, dim=0).numpy())
    return vectors


def rows(texts, vectors):
    """First 16 components as they are, the whole vector in half precision."""
    return [
        {
            "text": text,
            "head": [round(float(x), 7) for x in vector[:16]],
            "float16": base64.b64encode(vector.astype("<f2").tobytes()).decode(),
        }
        for text, vector in zip(texts, vectors, strict=True)
    ]


def main():
    tiny = write_tiny_bert(Path(tempfile.mkdtemp()))
    table = {
        "average": rows(TEXTS, reference(sys.argv[1], TEXTS, "mean", 256, False)),
        "truncate": rows([LONG], reference(sys.argv[1], [LONG], "mean", 256, True)),
        "tiny_cls": rows(TINY_TEXTS, reference(tiny, TINY_TEXTS, "cls", 24, False)),
    }
    path = Path(__file__).with_name("local_reference.json")
    path.write_text(json.dumps(table, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


main()
