"""Installation of gpud for a machine, and its removal, with nothing but the standard library.

Everything is noted in the manifest before it is made; ``undo`` undoes each kind of line there.
What an uninstallation loads runs with any Python from 3.9.
"""
