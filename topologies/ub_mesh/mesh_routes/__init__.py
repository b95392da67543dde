"""UB-Mesh's routing, and its reaction to a broken link (4).

`strategy` is the setting, and says when all have heard of a failed link. `mesh_routing` computes the routes of messages by the
paths of `apr` that cannot deadlock; `mesh_shifts` has the shifts that keep all of them.
"""
