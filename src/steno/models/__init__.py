"""Models: one file per wire format. What a provider's JSON looks like is known there and nowhere
else."""
