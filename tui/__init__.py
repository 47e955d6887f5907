"""The terminal chat. Knows the client protocol (client.py) and the chats on disk; no engine."""
