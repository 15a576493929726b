"""`eso plan`: what manifests would change, without changing it.

command.py     options, exit codes, output
page.py        text and JSON
planning.py    manifests and live objects -> simulation -> `Plan`
simulation.py  a private API server with the real operator, until every object has settled
seeding.py     objects of that server: manifests, and copies of live objects
live.py        live objects: from a cluster, from a recording, or none
backends.py    providers: processes that are started, or a recording
"""
