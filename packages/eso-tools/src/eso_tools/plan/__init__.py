"""`eso plan`: what manifests would change, without changing it.

plan.py         manifests and live objects -> simulation -> `Plan`
simulation.py   a private API server with the real operator, until every object has settled
seeding.py      objects of that server: manifests, and copies of live objects
needs.py        the objects that an object refers to
live.py         live objects: from a cluster, from a recording, or none
backends.py     providers: processes that the caller starts, or a recording
withholding.py  calls with effects, which no provider gets
replay.py       responses of providers, recorded and replayed
recording.py    the file of a recording; standins.py replaces its values
differences.py  what changes in a target
"""
