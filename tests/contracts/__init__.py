"""One suite per kind of plug-in, over every implementation there is."""
