"""The local server: OpenAI's surface, and others, over AsyncLLM."""
