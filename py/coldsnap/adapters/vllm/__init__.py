"""coldsnap in vLLM: ``--load-format coldsnap``."""
