"""The example of a Model Context Protocol server, called by the client of the official SDK."""

import asyncio
import sys
from pathlib import Path

import pytest
from support.commands import own_environment
from support.index_stubs import TEXTS, make_cache
from support.intent_examples import LABELS
from support.intent_examples import TEXTS as EXAMPLES

from convert_tf import IntentClassifier
from convert_tf.search.encoders import load_encoder

pytest.importorskip("mcp.server.mcpserver", reason="needs mcp 2")
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "mcp_server.py"

pytestmark = pytest.mark.slow


def test_a_client_asks_for_intents_and_candidates(tmp_path, tiny_onnx):
    encoder = load_encoder(tiny_onnx)
    cache = make_cache(tmp_path / "cache", TEXTS[:20], encoder)
    classifier = IntentClassifier(str(tiny_onnx)).fit(EXAMPLES, LABELS)
    classifier.save(tmp_path / "model")
    arguments = [str(path) for path in (EXAMPLE, tmp_path / "model", cache.folder, tiny_onnx)]
    server = StdioServerParameters(command=sys.executable, args=arguments, env=own_environment())

    async def ask():
        async with stdio_client(server) as streams, ClientSession(*streams) as session:
            await session.initialize()
            tools = (await session.list_tools()).tools
            intents = await session.call_tool("classify", {"text": EXAMPLES[0], "top_k": 2})
            texts = await session.call_tool("search", {"query": TEXTS[4], "top_k": 20})
            return [tool.name for tool in tools], intents, texts

    names, intents, texts = asyncio.run(ask())
    assert names == ["classify", "search"]
    expected = sorted(classifier.predict_proba(EXAMPLES[:1])[0])[-2:]
    answered = intents.structured_content
    assert sorted(answered.values()) == pytest.approx(expected, abs=1e-6)
    assert sorted(texts.structured_content["result"]) == sorted(TEXTS[:20])
