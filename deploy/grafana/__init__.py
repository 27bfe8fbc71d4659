"""gpud's Grafana dashboards as code; `deploy/build-dashboards` writes them to `dashboards/`.

`machine` and `fleet` are the two dashboards, a function for each panel or row. `parts` is the
house style, `selecting` how a query chooses its series, `variables` and `annotations` what a
dashboard has beside its panels. tests/grafana holds them against rules and a live Prometheus.
"""
