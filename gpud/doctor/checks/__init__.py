"""Checks by subject: each module has functions with ``finding.check`` above them."""
