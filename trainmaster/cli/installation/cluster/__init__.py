"""What `trainmaster operator install`, `upgrade` and `uninstall` change on a cluster: the objects that the chart has.

`objects` and `inventory` say what belongs to an installation, `values` what the user wants, `checks` what speaks
against it. `writes` has the requests, `rollout` waits for the Pods; `applying` and `removal` are the order of all that.
"""
