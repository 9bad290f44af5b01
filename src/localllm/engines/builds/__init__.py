"""Builds of llama-cpp-python: which one this machine wants, installing it beside the others, and which is in use.

A build lies in a folder of its own under the data folder, never in the environment localllm runs from: a build that
fails, or fails to start, leaves what worked untouched, several can lie side by side, and switching back is instant.
"""
