"""# Choose a tool by its description

An assistant may have hundreds of tools or functions. If every prompt contains the descriptions of
all tools, prompts become long and the assistant chooses worse. This script finds the few tools that
fit a message. It compares the similarity vectors of the message and of the tools' descriptions.
Only the best tools then go into the prompt. The tools are listed in the same way as by a server of
the Model Context Protocol.
"""

from convert_tf import SentenceEncoder

TOOLS = [
    {"name": "create_event", "description": "Add a meeting or an appointment to the calendar."},
    {"name": "send_email", "description": "Write an e-mail and send it to somebody."},
    {"name": "get_forecast", "description": "Tell the weather of a place in the next days."},
    {"name": "convert_currency", "description": "Convert an amount of money between currencies."},
    {"name": "translate_text", "description": "Translate a text into another language."},
    {"name": "play_music", "description": "Play a song, an album or a playlist."},
    {"name": "set_timer", "description": "Start a timer that rings after some minutes."},
    {"name": "book_flight", "description": "Buy a plane ticket."},
    {"name": "track_parcel", "description": "Tell where an order is and when it arrives."},
    {"name": "query_database", "description": "Run an SQL query and return the rows."},
    {"name": "create_issue", "description": "Report a bug in a repository on GitHub."},
    {"name": "read_file", "description": "Return the content of a file on disk."},
]

encoder = SentenceEncoder("convert_small")


def words(tool):
    """Return the name of a tool as words, followed by its description."""
    return f"{tool['name'].replace('_', ' ')}: {tool['description']}"


tool_vectors = encoder.encode_similarity([words(tool) for tool in TOOLS])


def choose(message, top_k=3):
    """Return the tools that fit a message, best first. Similarity vectors have length 1."""
    scores = tool_vectors @ encoder.encode_similarity(message)
    return [TOOLS[i] for i in scores.argsort()[::-1][:top_k]]


for message in (
    "will it rain in Oslo tomorrow?",
    "how much are 200 dollars in yen?",
    "remind me in 20 minutes to take the cake out",
    "the login page crashes, please file that",
    "has my package left the warehouse?",
):
    print(f"{message}\n  {', '.join(tool['name'] for tool in choose(message))}")

# For thousands of tools, `convert-tf index build --kind similarity` stores their vectors on disk,
# and `convert-tf index edit` adds and removes tools.
