"""The user's Ollama as an engine, through its native API: its ``/v1`` ignores ``num_ctx`` and cuts prompts in silence.

``wire`` are its shapes, ``translate`` the pure way there and back, ``daemon`` finds or starts it, ``instance`` is one
loaded model, ``engine`` the engine.
"""
