"""The alert subject: what is wrong, in which words, and how people are told."""
