"""The services of the agent: page, metrics and API over HTTP, and the local socket."""
