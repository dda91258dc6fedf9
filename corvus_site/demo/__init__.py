"""The demo origin: a small ticket shop that really falls over above its limit. No Django."""
