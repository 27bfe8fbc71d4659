"""Many machines on one: their scrapes are the real exporter's, their figures are made up."""
