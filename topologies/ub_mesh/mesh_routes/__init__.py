"""UB-Mesh's routing, and its reaction to a broken link (4).

`strategy` is the setting. `mesh_routing` computes the routes of messages, `rack_routes` those in a rack, by the paths of `apr`
that cannot deadlock. `symmetry` has the shifts that keep all of them. `source_route` is the header that carries a packet's
route, `recovery` says when all have heard of a failed link.
"""
