"""gpud's Grafana dashboards as code; `deploy/build-dashboards` writes them to `dashboards/`.

`parts` is the house style, `selecting` how a query chooses its series, `variables` and
`annotations` what a dashboard has beside its panels. `machine` and `fleet` are the two dashboards:
a module for each group of rows, a function for each row. The library is a builder and no validator:
tests/grafana holds the result against the rules of the house and a live Prometheus.
"""
