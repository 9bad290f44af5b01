"""Where models come from: each source lists what it has and says where a file's bytes are right now."""
