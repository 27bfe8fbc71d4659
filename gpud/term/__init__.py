"""The terminal beside the verbs' own output: live view, logs, the manual."""
