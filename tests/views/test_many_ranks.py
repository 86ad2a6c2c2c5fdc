"""Are thousands of ranks shown by node, and is the page small?"""

from __future__ import annotations

import json

import numpy as np
import pytest
from planet import Job, write

from perfdoctor.diagnosis.engine import examine
from perfdoctor.records.views import Heat, Table
from perfdoctor.report import html, json_report
from perfdoctor.scale.read import read_run
from perfdoctor.views.pages import ranks
from perfdoctor.vocabulary.rulebook import load_rules

JOB = Job.of(100, "rank")


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    folder = tmp_path_factory.mktemp("job")
    write(JOB, folder)
    run = read_run([folder], lambda _: None, most_in_full=0)
    return run, examine(run, list(load_rules().values())).diagnosis


@pytest.fixture(scope="module")
def shown(job):
    return {each.id: each for each in ranks.view(*job)}


def test_each_rank_is_a_cell_of_its_node_and_rail(job, shown):
    heat = shown["nodes-work"]
    assert isinstance(heat, Heat)
    assert heat.values.shape == (JOB.ranks // JOB.tensor_size, JOB.tensor_size)
    for place in job[0].job.places:
        own_ns = place.compute.total_ns + place.exposed_copies.total_ns + place.idle.total_ns
        node, rail = divmod(place.rank, JOB.tensor_size)
        assert heat.values[node, rail] == pytest.approx(own_ns / place.units)
    assert heat.numbers["rank"][0] == JOB.slow_rank
    assert np.unravel_index(heat.values.argmax(), heat.values.shape) == divmod(JOB.slow_rank, JOB.tensor_size)


def test_tables_have_those_that_stand_out(job, shown):
    table = shown["ranks"]
    assert isinstance(table, Table)
    names = list(table.columns[0].values)
    assert len(names) < JOB.ranks / 2
    for rank in (JOB.slow_rank, *job[0].timeline.ranks):
        assert f"rank {rank}" in names


def test_the_json_has_the_time_of_every_rank_and_node_and_the_recording_of_those_read_in_full(job):
    run, diagnosis = job
    said = json.loads(json_report.render(diagnosis))
    assert [row["rank"] for row in said["time"]] == list(run.ranks)
    assert {row["rank"] for row in said["recording"]} == set(run.timeline.ranks)
    mean, nodes = said["job"]["mean"], said["job"]["nodes"]
    assert (mean["ranks"], len(nodes)) == (JOB.ranks, JOB.ranks // JOB.tensor_size)
    assert [node["first_rank"] for node in nodes] == list(range(0, JOB.ranks, JOB.tensor_size))
    for part in ("step_ns", "compute_ns", "idle_ns"):
        assert mean[part] == pytest.approx(np.mean([node[part] for node in nodes]), abs=1)
    places = run.job.places
    assert mean["compute_ns"] == round(np.mean([place.compute.total_ns / place.units for place in places]))


def test_the_page_has_no_row_for_each_rank(job):
    _, diagnosis = job
    page = html.render(diagnosis)
    assert "100 ranks" in page
    assert page.count("<tr") < JOB.ranks
