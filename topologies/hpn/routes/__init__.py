"""HPN's ways (6.1): `routing` is a message's, given its key; `paths` how a host picks among connections."""
