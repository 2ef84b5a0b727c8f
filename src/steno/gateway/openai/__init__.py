"""The routes under /v1: sessions for clients that speak the API of OpenAI."""
