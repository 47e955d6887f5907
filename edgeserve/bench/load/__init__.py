"""Load on any OpenAI-compatible server: what is asked, when, what came back, and the figures."""
