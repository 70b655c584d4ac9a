"""The shape of an LLM from its Hugging Face `config.json`."""
