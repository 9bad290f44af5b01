"""Other machines as an engine: any server that speaks OpenAI's API, from a cloud to another localllm.

``target`` says where it is, ``wire`` are the shapes, ``connection`` is HTTP and its errors as ours, ``probe`` finds out
what it can do, ``translate`` and ``answer`` are the pure way there and back, ``instance`` one model, ``engine`` the engine.
"""
