"""HPN's routes (6.1): `hash_routing` gives a message's, for a key; `paths` models how a host picks among connections."""
