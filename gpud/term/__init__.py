"""What a person meets at a terminal beside the verbs' own words: live view, logs, the manual."""
