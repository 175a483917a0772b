"""The examples that sample run, at a small size, and what they print is what they claim."""

import re

from test_examples import assert_picture, run

NUMBER = r"(-?[\d.]+(?:e[-+]?\d+)?)"


def numbers(pattern, text):
    """What stands in the groups of a pattern, as numbers; the pattern must be found."""
    found = re.search(pattern, text)
    assert found, f"{pattern} is not in\n{text}"
    return [float(group) for group in found.groups()]


def test_jeffreys_limit(tmp_path):
    printed = run("jeffreys_limit.py", "--quick", "--output", "limit.png", folder=tmp_path)
    assert_picture(tmp_path / "limit.png")

    def row(label):
        return numbers(rf"(?m)^{re.escape(label)} +{NUMBER} +{NUMBER} +{NUMBER}", printed)

    dof, noise_sd, _ = row("Jeffreys()")
    far = row("Power(-0.25)")
    assert abs(far[0] - dof) > 1
    for near in (row("Gamma(1e-06, 1e-06)"), row("Power(-0.999)")):
        # Two runs of some 50 effective draws, whose sd is 0.8 degrees of freedom
        assert abs(near[0] - dof) < 0.6
        assert abs(near[1] / noise_sd - 1) < 0.1
        assert near[2] < 0.3 < far[2]
    refused = r"(?m)^Power\(-0.999\).* refused +refused$"
    assert re.search(refused, printed)
    assert "SE07 section 6.5" in printed


def test_bounds(tmp_path):
    printed = run("bounds.py", "--quick", "--output", "bounds.png", folder=tmp_path)
    assert_picture(tmp_path / "bounds.png")
    left = {
        measure: numbers(rf"(?m)^{measure} +1e\+06 +{NUMBER} +{NUMBER} +{NUMBER} \(", printed)
        for measure in ("alpha", "log")
    }
    assert left["alpha"][:2] == left["log"][:2]  # the MAP does not know the measure
    assert left["alpha"][2] < 0.5
    assert left["log"][2] > 0.7 * left["log"][1]
    assert "the posterior has left the components of the MAP" in printed
    for measure, size in (("alpha", 6.45), ("log", 3.24)):  # at high = 1e6, the third bound of the table
        assert re.search(rf"BIC, N = 128 .* {measure} .*\) +{size} \(.*\) +{NUMBER} \(", printed)


def test_trend_and_sparse(tmp_path):
    printed = run("trend_and_sparse.py", "--quick", "--output", "trend.png", folder=tmp_path)
    assert_picture(tmp_path / "trend.png")
    inside, divergences = numbers(r"central 95 % of their draws: (\d) of 4.*\n.*transitions: (\d+)", printed)
    assert inside >= 3
    assert divergences == 0
    error, noise_sd = numbers(rf"Error of the sparse part: {NUMBER} .*noise sd {NUMBER}\)", printed)
    assert error < noise_sd
    centres = [float(centre) for centre in re.search(r"(?m)^  (.*)   \(peaks at", printed)[1].split(", ")]
    for peak in (2.2, 4.7):  # the third is as small as the noise allows here
        assert min(abs(centre - peak) for centre in centres) < 0.5


def test_identical_columns(tmp_path):
    printed = run("identical_columns.py", "--quick", "--output", "twins.png", folder=tmp_path)
    assert_picture(tmp_path / "twins.png")
    assert "MapFit: 1 of 2 columns kept" in printed
    verdict = " ".join(printed.split())  # it is broken into lines
    assert "the delta function loses little in prediction" in verdict
    assert "It is no description of the hyperparameters" in verdict
    first = numbers(r"the first is the weaker one in (\d+)%", printed)[0]
    assert 25 < first < 75
    spread = [numbers(rf"(?m)^{name} +\S+ +{NUMBER} +{NUMBER} +{NUMBER}$", printed) for name in ("alpha_1", "alpha_2")]
    assert min(top / low for low, _, top in spread) > 1000
