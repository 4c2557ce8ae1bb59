"""Everything about Pod specs that Pods and Pod templates share: defaults, rules, resources, how Pods are printed."""
