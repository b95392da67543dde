"""How UB-Mesh routes, and what a broken link asks of it (4).

`strategy` is the setting. `routing` computes the ways of messages, `inside` those of a rack, by the paths of `apr` that cannot
deadlock; `symmetry` has the shifts that leave all of them as they are. `source_route` is the header that says a packet's way,
`recovery` who hears of a failed link.
"""
