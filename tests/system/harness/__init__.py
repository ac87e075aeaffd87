"""Starts servers, drives other people's clients at them, and keeps what they said."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PEERS = ROOT / "target" / "peers"
