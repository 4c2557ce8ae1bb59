"""Records of jobs, also of deleted ones, as an aggregated API of the cluster: `jobrecords.records.trainmaster.dev`.

API servers pass requests on to this port of every replica that has the archive, and say who sent them. So kubectl and
`trainmaster history` and `logs` work with any kubeconfig, with the rights of its user.

installation   what the cluster needs for it: APIService, role, binding (pure; for whoever builds the manifests)
front_proxy    who sent a request, as an API server says, and why that is believed
access         what that user may read
routes         which requests there are (pure)
documents      discovery documents and tables (pure)
archiving      who fills the archive: the history of an operator, on this machine
reading        the archive, in threads
streaming      what the processes of a job printed, as a stream
server         the port
serving        puts them together for `operator.mode`
"""
