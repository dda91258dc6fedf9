"""The demo origin's pages: a concert and its tickets. Self-contained HTML, pictures inline."""

# ruff: noqa: E501 - pictures and style sheets

from __future__ import annotations

from collections.abc import Iterable
from html import escape

_STYLE = """
:root{color-scheme:light dark;--paper:#f6f1e7;--ink:#1c2433;--soft:#5c6474;--line:#d9d0bf;--gold:#a8631a;
--card:#fffdf8;--button:#1c2433;--on:#fff}
@media(prefers-color-scheme:dark){:root{--paper:#11151f;--ink:#eef0f5;--soft:#a3abbb;--line:#2b3345;
--gold:#f0b65c;--card:#181e2b;--button:#f0b65c;--on:#1a1408}}
*{box-sizing:border-box}body{margin:0;background:var(--paper);color:var(--ink);
font:1.05rem/1.6 Georgia,"Noto Serif",serif}
header,main,footer{max-width:60rem;margin:0 auto;padding:1rem 1.25rem}
header{display:flex;gap:1.5rem;align-items:baseline;flex-wrap:wrap}
header strong{font-size:1.15rem;letter-spacing:.02em;margin-inline-end:auto}
a{color:var(--gold)}nav a{margin-inline-start:1.1rem;text-decoration:none}
h1{font-size:clamp(2rem,6vw,3.4rem);line-height:1.1;margin:.4em 0 .2em}
.hero{width:100%;height:auto;border-radius:1rem;display:block}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(13rem,1fr));gap:1rem;margin:1.5rem 0}
.card{background:var(--card);border:1px solid var(--line);border-radius:.8rem;padding:1rem 1.2rem}
.card b{display:block;font-size:1.5rem}.card span,footer,small{color:var(--soft)}
.buy,button{display:inline-block;background:var(--button);color:var(--on);border:0;border-radius:2rem;
padding:.8rem 1.8rem;font:inherit;text-decoration:none;cursor:pointer}
label{display:block;margin:.8rem 0 .2rem}input,select{font:inherit;padding:.55rem .7rem;width:100%;
max-width:24rem;border:1px solid var(--line);border-radius:.5rem;background:var(--card);color:inherit}
table{border-collapse:collapse;width:100%}td,th{text-align:start;padding:.4rem .6rem;
border-bottom:1px solid var(--line);vertical-align:top;overflow-wrap:anywhere}
footer{border-top:1px solid var(--line);margin-top:2rem;font-size:.92rem}
"""

_SCRIPT = """
const tell=(id,text)=>{const e=document.getElementById(id);if(e)e.textContent=text};
const events=new EventSource('/events');
events.onmessage=e=>{const d=JSON.parse(e.data);tell('left',d.left);tell('mood',d.mood);
tell('shoppers',d.shoppers+' of '+d.limit)};
const at=location.protocol.replace('http','ws')+'//'+location.host+'/clock';
const clock=new WebSocket(at);clock.onmessage=e=>tell('clock',e.data);
"""

_HARBOUR = """
<svg class="hero" viewBox="0 0 960 380" role="img" aria-label="A harbour at night: a full moon, a lit stage
on the quay, and four herons flying over the water">
<defs><linearGradient id="sky" x1="0" y1="0" x2="0" y2="1"><stop offset="0" stop-color="#101a35"/>
<stop offset=".62" stop-color="#37456f"/><stop offset="1" stop-color="#d68b4c"/></linearGradient>
<linearGradient id="sea" x1="0" y1="0" x2="0" y2="1"><stop offset="0" stop-color="#8a5f50"/>
<stop offset="1" stop-color="#0e1730"/></linearGradient></defs>
<rect width="960" height="270" fill="url(#sky)"/><circle cx="730" cy="92" r="46" fill="#fbeecb"/>
<g fill="#fff"><circle cx="90" cy="60" r="1.6"/><circle cx="210" cy="110" r="1.3"/><circle cx="330" cy="44" r="1.7"/>
<circle cx="470" cy="86" r="1.2"/><circle cx="560" cy="36" r="1.5"/><circle cx="870" cy="60" r="1.6"/></g>
<path d="M0 236h120v-46h30v-22h24v22h52v46h90v-30h44v30h300v-40h26v-60h20v60h54v40h200v40H0z" fill="#141c33"/>
<g fill="#f6c768"><path d="M132 204h10v12h-10zM164 204h10v12h-10zM198 204h10v12h-10zM674 208h8v10h-8zM706 208h8v10h-8z"/></g>
<path d="M400 270l30-96h150l30 96z" fill="#f6c768" opacity=".28"/><path d="M424 270v-92h162v92" fill="none"
stroke="#141c33" stroke-width="7"/><rect x="398" y="262" width="214" height="12" fill="#0c1226"/>
<rect y="270" width="960" height="110" fill="url(#sea)"/><g stroke="#fbeecb" stroke-width="3" opacity=".55">
<path d="M690 288h80M706 304h52M684 322h94M714 342h38"/></g>
<g fill="none" stroke="#0a0f1f" stroke-width="5" stroke-linecap="round"><path d="M196 128q22-26 40 0q22-26 44-4"/>
<path d="M282 92q18-21 32 0q18-21 36-3"/><path d="M352 140q15-18 28 0q15-18 30-2"/><path d="M250 176q13-15 24 0q13-15 26-2"/></g></svg>
"""


def page(title: str, body: str) -> str:
    """Give a whole page."""
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)} · The Night Herons</title><style>{_STYLE}</style>"
        '<header><strong>The Night Herons</strong><nav><a href="/">Concert</a>'
        '<a href="/tickets">Tickets</a><a href="/about">About</a><a href="/debug">Debug</a></nav></header>'
        f"<main>{body}</main>"
        '<footer>Shoppers: <span id="shoppers">–</span> · the shop is <span id="mood">–</span>'
        ' · clock <span id="clock">–</span><br>A demonstration site, shown because no upstream is set.'
        f"</footer><script>{_SCRIPT}</script></html>"
    )


def concert(left: int) -> str:
    """Give the landing page."""
    return page(
        "Live at the Old Harbour",
        f"{_HARBOUR}<h1>Live at the Old Harbour</h1>"
        "<p>One night, one stage on the quay, and the tide coming in. Doors open at seven.</p>"
        '<div class="facts"><div class="card"><span>When</span><b>21 June, 20:30</b></div>'
        '<div class="card"><span>Where</span><b>Old Harbour, Pier 4</b></div>'
        f'<div class="card"><span>Tickets left</span><b id="left">{left}</b></div></div>'
        '<p><a class="buy" href="/tickets">Get tickets</a></p>',
    )


def tickets(left: int) -> str:
    """Give the page with the order form."""
    return page(
        "Tickets",
        f'<h1>Tickets</h1><p><b id="left">{left}</b> are left. Four at most for each person.</p>'
        '<form method="post" action="/order"><label for="name">Name on the ticket</label>'
        '<input id="name" name="name" autocomplete="name" required>'
        '<label for="seats">How many</label><select id="seats" name="seats"><option>1<option>2'
        "<option>3<option>4</select><p><button>Order</button></p></form>",
    )


def ordered(fields: dict[str, str], number: int) -> str:
    """Give the page after an order, with everything that was sent."""
    return page(
        "Thank you",
        f"<h1>Thank you, {escape(fields.get('name') or 'friend')}</h1>"
        f"<p>Order number <b>{number}</b>. This is what arrived:</p>{_table(fields.items())}",
    )


def about() -> str:
    """Tell what this site is for."""
    return page(
        "About",
        "<h1>About this site</h1><p>It bears only a few people at once. With more it slows down, and at "
        "twice as many it falls over. Open it at its own address in several private windows to see that; "
        "then open it through the gateway, where the others wait in a line and nothing breaks.</p>",
    )


def debug(lines: Iterable[tuple[str, str]]) -> str:
    """Show the request as it arrived."""
    return page("Debug", f"<h1>Your request, as it arrived</h1>{_table(lines)}")


def fallen(shoppers: int, limit: int) -> str:
    """Tell that the shop is down."""
    return page(
        "Down",
        f"<h1>The shop has fallen over</h1><p>{shoppers} came at once; it bears {limit}. "
        "It gets up again when fewer are here.</p>",
    )


def _table(rows: Iterable[tuple[str, str]]) -> str:
    cells = (f"<tr><th>{escape(name)}<td>{escape(value)}" for name, value in rows)
    return f"<table>{''.join(cells)}</table>"
