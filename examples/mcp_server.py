"""# A server for the Model Context Protocol

Assistants that support MCP get two tools from this server. `classify` returns the intent of a
message, and `search` returns the best candidates in an index. The server needs
`pip install "mcp>=2"`, a classifier from `convert-tf intent train` and an index from
`convert-tf index build`:

    python mcp_server.py model/ cache/ convert_small

The assistant runs this command itself and communicates with the server over standard input and
output.
"""

import sys

from mcp.server.mcpserver import MCPServer

from convert_tf import CandidateIndex, IntentClassifier
from convert_tf.search.cache import CandidateCache
from convert_tf.search.encoders import load_encoder

model, folder, encoder = sys.argv[1:]
classifier = IntentClassifier.load(model)
cache = CandidateCache(folder)
index = CandidateIndex(cache, load_encoder(encoder, kind=cache.kind))
server = MCPServer("convert-tf")


@server.tool()
def classify(text: str, top_k: int = 3) -> dict[str, float]:
    """Return the most probable intents of a message, with their probabilities."""
    probabilities = classifier.predict_proba([text])[0]
    best = probabilities.argsort()[::-1][:top_k]
    return {str(classifier.classes_[i]): float(probabilities[i]) for i in best}


@server.tool()
def search(query: str, top_k: int = 5) -> list[str]:
    """Return the stored texts that fit a query best, best first."""
    ids, _ = index.search([query], top_k=top_k)
    return [index.cache.text(i) for i in ids[0]]


if __name__ == "__main__":
    server.run()
