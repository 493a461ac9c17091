#!/usr/bin/env python3
"""Writes tests/train/golden/model.safetensors without tutti: by the description of the format, with Python's json.

    python3 tests/train/golden/safetensors.py tests/train/golden/model.safetensors
"""

import json
import struct
import sys

tensors = {
    "layer.weight": ("F32", [2, 3], struct.pack("<6f", 0, 0.5, -1, 1.5, 2, 1e30)),
    "layer.bias": ("F64", [3], struct.pack("<3d", 1, -2, 0.1)),
    "größe \"q\"": ("I64", [], struct.pack("<q", -7)),
    "empty": ("BF16", [0, 4], b""),
    "mask": ("BOOL", [3], bytes([1, 0, 1])),
}
header, data = {"__metadata__": {"format": "pt", "note": "tab\tand \U0001d11e"}}, b""
for name, (dtype, shape, content) in tensors.items():
    header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
    data += content
text = json.dumps(header).encode()  # with spaces, and \\u escapes for what is not ASCII
text += b" " * (-len(text) % 8)
with open(sys.argv[1], "wb") as file:
    file.write(struct.pack("<Q", len(text)) + text + data)
