"""Spikes: experiments that answered a question of design, kept with their figures.

Each is one file that runs alone and that nothing imports; a note in `docs/notes/` says
what it found. A spike may need a package that the project does not depend on. It knows
the store by its contract, and it is not part of `make bench`.
"""
