from emu.topology.catalogue import build_topology


def test_no_hop_takes_time_and_every_gpu_has_its_800_gigabytes_a_second():
    switch = build_topology("big-switch:n=16")
    assert set(switch.links.latency_fs.tolist()) == {0}
    assert set(switch.links.bandwidth_Bps.tolist()) == {800e9}
    assert switch.bill == {"NPU": 16, "switch": 1, "cable": 16}
