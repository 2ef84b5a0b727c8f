"""Chats in which people talk to steno: what arrives is stored, then acknowledged; what is owed is
recorded, then sent."""
