"""What page and terminal share: tables, words and figures from the status document. No I/O."""
