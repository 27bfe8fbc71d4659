"""What the agent serves: page, metrics and API over HTTP, and the local socket."""
