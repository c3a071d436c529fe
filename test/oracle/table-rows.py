"""Writes chat examples as `datasets` and pandas store them: absent fields become null, tool arguments stay objects.

python test/oracle/table-rows.py   (datasets 5.2.0, pandas; writes test/oracle/table-rows.json)
"""

import io
import json
from pathlib import Path

import datasets
import pandas

EXAMPLES = [
    {
        "messages": [
            {"role": "user", "content": "What is in a.txt?"},
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "read", "arguments": {"path": "a.txt"}}}],
            },
            {"role": "tool", "tool_call_id": "call_1", "name": "read", "content": "one"},
            {"role": "assistant", "content": "one"},
        ]
    },
    {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]},
]

table = datasets.Dataset.from_list(EXAMPLES)
as_datasets, as_pandas = io.BytesIO(), io.StringIO()
table.to_json(as_datasets)
pandas.DataFrame(table.to_list()).to_json(as_pandas, orient="records", lines=True)
lines = lambda text: [json.loads(line) for line in text.splitlines()]
result = {
    "versions": {"datasets": datasets.__version__, "pandas": pandas.__version__},
    "examples": EXAMPLES,
    "datasets": lines(as_datasets.getvalue().decode()),
    "pandas": lines(as_pandas.getvalue()),
}
Path(__file__).with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
