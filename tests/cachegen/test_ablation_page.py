"""The page of an ablation: sizes at equal harm between levels, and what each stage gains."""

import pytest

from cachegen.ablation_page import ablation_tables


def rows(variant, *points):
    return [
        {
            "variant": variant,
            "level": level,
            "num_bytes": 1000,
            "bits_per_element": bits,
            "ratio_fp16": 16 / bits,
            "kl": kl,
            "agreement": 0.9,
            "dppl": 0.1,
        }
        for level, (bits, kl) in enumerate(points)
    ]


def tables_of(codec):
    plain, better = rows("plain", (4.0, 1e-4), (2.0, 1e-2)), rows("better", (2.0, 1e-4), (1.0, 1e-2))
    quantized = {**rows("quant8", (8.0, 1e-3))[0], "level": None}
    measured = [quantized, *plain, *better]
    return list(ablation_tables({"tokens": 9, "ablations": {codec: measured}}))


@pytest.mark.parametrize("codec", ["cachegen", "transform"])
def test_bits_at_equal_kl_lie_between_levels_and_nowhere_else(codec):
    equal, every_level = tables_of(codec)

    assert [row[:5] for row in equal.rows] == [
        ["plain", "3.000", "2.523", "2.000", "–"],
        ["better", "1.500", "1.261", "1.000", "–"],
    ]
    assert [row[0] for row in every_level.rows] == ["quant8", "plain", "plain", "better", "better"]
    assert all(len(table.headings) == len(row) for table in (equal, every_level) for row in table.rows)


def test_a_stage_gains_what_the_one_before_takes_more():
    equal, _ = tables_of("transform")
    assert [row[-1] for row in equal.rows] == ["", "2.00"]
