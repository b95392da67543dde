"""`emu list collectives` has every algorithm that the field and the papers name."""

HALVES = {
    "ring bidirectional-ring direct halving-doubling bruck swing torus-buckets 2d-ring railx-ring hyperx-direct railx-hyperx",
    "multi-ring multi-ring-borrowed hierarchical-ring hierarchical-direct hierarchical-direct-ring in-switch",
}
NAMED = {
    "all_reduce": HALVES | {"recursive-doubling circulant double-tree sipco flex-sipco"},
    "reduce_scatter": HALVES,
    "all_gather": HALVES | {"recursive-doubling"},
    "all_to_all": {"pairwise at-once ring bruck binary-exchange multipath single-path dimension-ordered torus rail"},
    "dispatch": {"flat hierarchical"},
    "combine": {"flat hierarchical"},
    "broadcast": {"binomial pipelined-chain scatter-all-gather"},
    "reduce": {"binomial pipelined-chain reduce-scatter-gather"},
    "gather": {"binomial pipelined-chain"},
    "scatter": {"binomial pipelined-chain"},
}


def test_every_named_algorithm_is_listed_with_what_it_does_and_its_family(emu) -> None:
    rows = emu("list", "collectives", "--json").json
    for operation, lines in NAMED.items():
        listed = {row["algorithm"] for row in rows if row["operation"] == operation}
        wanted = {name for line in lines for name in line.split()} - ({"bruck"} if operation == "all_reduce" else set())
        assert wanted <= listed
    assert all(row["summary"] and row["family"] for row in rows)
    (found,) = (r["family"] for r in rows if (r["operation"], r["algorithm"]) == ("all_to_all", "rail"))
    assert found.startswith(
        "Collectives among m nodes with g ranks each that use the NICs of all ranks; "
        "ranks with the same local index share a rail."
    )


def test_the_settings_of_a_topology_are_listed_with_their_defaults(emu) -> None:
    rows = emu("list", "topologies", "rail-optimised", "--json").json
    (whole,) = (row for row in emu("list", "topologies", "--json").json if row["name"] == "rail-optimised")
    assert {row["setting"]: row["default"] for row in rows} == whole["settings"]
    told = emu("list", "topologies", "torus").out
    assert told.startswith("setting")
    assert "dims       (must be given)" in told


def test_a_topology_that_is_unknown_has_no_settings(emu) -> None:
    done = emu("list", "topologies", "rail-optimized")
    assert done.code == 2
    assert "rail-optimised" in done.err
