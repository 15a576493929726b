"""`eso migrate`: v1 stores and v1alpha1 generators become v2 objects, and references follow, forth and back.

inventory   the objects of files or of a cluster
bridges     which v1 block or generator becomes which kind; the installed providers declare it
convert     one v1 store or generator -> its v2 objects, or a refusal
references  where objects name stores and generators
plan        everything -> new objects, switches of references, and sentences about what is left
rollback    the way back
probes      reads values both ways and compares digests
cluster     writes a plan to a cluster
"""
