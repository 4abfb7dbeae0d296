"""FastAPI: what the world may call. Only this package speaks HTTP in."""
