"""Conversations on disk: kept, searched, exported. Knows no engine and no screen."""
