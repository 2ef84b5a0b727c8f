"""The folder that a session belongs to: what its files say to those who work there, what is found
around it, the commands and skills of its owner, and how two versions of a file differ."""
