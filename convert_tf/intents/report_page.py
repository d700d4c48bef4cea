"""An HTML page that shows groups of messages."""

from collections.abc import Sequence
from html import escape

from convert_tf.intents.discover import group_title, grouping_summary, nearest_text
from convert_tf.intents.messages import CENTRAL, Report

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:50em;margin:2em auto;padding:0 1em}"
    "section{border-top:1px solid #ccc}h2{font-size:1.1em;margin-bottom:0}p{margin:.3em 0}"
    "@media(prefers-color-scheme:dark){body{background:#111;color:#ddd}}"
)


def discovery_page(report: Report) -> str:
    """Return an HTML page that shows the groups. The page needs no other files."""
    parts = [
        "<!doctype html>",
        '<html lang="en"><meta charset="utf-8"><title>Groups of messages</title>',
        f"<style>{_STYLE}</style>",
        f"<h1>Groups of messages</h1><p>{escape(grouping_summary(report))}.</p>",
    ]
    for row in report["groups"]:
        facts = f"{row['size']:,} messages, cohesion {row['cohesion']:.2f}{nearest_text(row)}"
        central, others = row["texts"][:CENTRAL], row["texts"][CENTRAL:]
        parts.append(f"<section><h2>{escape(group_title(report, row))}</h2>")
        parts.append(f"<p>{escape(facts)}</p>{_html_list(central)}")
        if others:
            parts.append(f"<details><summary>{len(others):,} more</summary>{_html_list(others)}")
            parts.append("</details>")
        parts.append("</section>")
    if leftovers := report["leftovers"]:
        parts.append(f"<section><h2>Smaller groups</h2>{_html_list(leftovers)}</section>")
    return "\n".join([*parts, "</html>", ""])


def _html_list(texts: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(text)}</li>' for text in texts)}</ul>"
