"""Screens of the terminal chat: they decide, widgets draw."""
