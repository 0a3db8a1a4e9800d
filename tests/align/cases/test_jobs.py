"""What a run has to do, and how worker processes share it."""

from align.cases.jobs import batches, jobs
from align.cases.kinds.case_kinds import DTYPES, ModelCase, TimmCase, TrainerCase, ValueCase
from align.cases.tables.cases import CASES
from align.record.results import STEPS


def shared(cases):
    """The names of each batch's jobs, in the order in which they are handed out."""
    todo = list(jobs(cases, STEPS, DTYPES))
    return [[todo[position][0].name for position in batch] for batch in batches(todo)]


def test_jobs_follow_the_cases_and_keep_the_steps_of_a_dtype_together():
    cases = [ModelCase("a", steps=("forward", "training"))]
    cases += [ValueCase("b", "any:"), ValueCase("c", "any:", steps=("loss",), dtypes=DTYPES)]
    found = [(case.name, step, dtype) for case, step, dtype in jobs(cases, STEPS, DTYPES)]
    assert found == [
        ("a", "forward", "float64"),
        ("a", "training", "float64"),
        ("a", "forward", "float32"),
        ("a", "training", "float32"),
        ("b", "data", None),
        ("c", "loss", "float64"),
        ("c", "loss", "float32"),
    ]


def test_jobs_keep_to_the_chosen_steps_and_dtypes():
    cases = [ModelCase("a"), ValueCase("b", "any:")]
    found = list(jobs(cases, ["backward", "data"], ["float32"]))
    assert [job[1:] for job in found] == [("backward", "float32"), ("data", None)]
    assert list(jobs(cases, ["training"], DTYPES)) == []


def test_every_job_is_in_exactly_one_batch():
    todo = list(jobs(CASES, STEPS, DTYPES))
    found = [position for batch in batches(todo) for position in batch]
    assert sorted(found) == list(range(len(todo)))
    assert all(batch == sorted(batch) for batch in batches(todo))
    assert batches([]) == []


def test_the_steps_of_a_pair_stay_together_and_its_precisions_do_not():
    (first, second) = shared([ModelCase("a", steps=("forward", "backward"))])
    assert first == second == ["a", "a"]


def test_cases_that_share_a_library_make_one_batch():
    cases = [ValueCase("a", "any:"), ValueCase("b", "pixel_values:operations")]
    cases += [ValueCase("c", "any:"), TimmCase("d", dtypes=("float64",))]
    found = {tuple(dict.fromkeys(batch)) for batch in shared(cases)}
    assert found == {("a", "c"), ("b", "d")}


def test_long_batches_come_first_and_equal_ones_keep_their_order():
    cases = [
        ValueCase("loss", "any:", steps=("loss",), dtypes=DTYPES),
        ModelCase("text", dtypes=("float64",)),
        ModelCase("other text", dtypes=("float64",)),
        ModelCase("images", subject="images", dtypes=("float64",)),
        ModelCase("run", steps=("forward", "training"), dtypes=("float64",)),
        TrainerCase("program", steps=("training",), dtypes=("float64",), quick=False),
        ModelCase("full", quick=False, dtypes=("float64",)),
    ]
    names = [batch[0] for batch in shared(cases)]
    assert names == ["full", "program", "run", "images", "loss", "text", "other text"]
