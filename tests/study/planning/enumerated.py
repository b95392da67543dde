"""Plans enumerated without `Space`: what a person counts who knows how layers are dealt to the stages of a pipeline."""


def virtual_stages(layers: int, places: int) -> list[int]:
    """How many stages a place may have: such that all stages have as many layers, or a power of two.

    Embedding and head count as a layer each, so that a stage at either end may have none; every other has one or more.
    """
    every = range(1, layers + 3)
    whole = [each for each in every if each * places in [stages for stages in every if layers / stages == layers // stages]]
    powers = [2**exponent for exponent in range(layers.bit_length() + 1) if places * 2**exponent <= layers + 2]
    return sorted({*whole, *powers})


def dealt(layers: int, stages: int) -> list[int]:
    """Layers of each stage: as even as can be, those that have one more in the middle, where no embedding and no head is."""
    found, middle = [layers // stages] * stages, (stages - 1) / 2
    for stage in sorted(range(stages), key=lambda stage: (abs(stage - middle), stage))[: layers % stages]:
        found[stage] += 1
    return found
