"""The part that page and terminal share: tables, words and figures from the status document."""
