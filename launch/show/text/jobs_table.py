"""Jobs side by side as text: a table of settings, the steps of each job, who slows whom, and the links that they share."""

from collections.abc import Iterator, Sequence

from emu.study.jobs.jobs_request import OWN, PRIORITY
from emu.study.jobs.jobs_row import JobBeside, JobsRow
from emu.study.jobs.setting_run import SLOWED
from emu.units import format_time
from launch.show.blocks import Fact, fact_lines
from launch.show.text.table import Column, column_table, figures, merged_assumption_lines, table

_MOST_LETTERS = 44  # of the NPUs of a job
_MOST_JOBS = 12  # of which the whole matrix is shown; of more, the jobs that slow others down
_MOST_LINES = 3  # on the links of one job


def jobs_report(rows: Sequence[JobsRow]) -> str:
    """Return the report of jobs: the table of settings if there are several, and the jobs in that with the shortest steps."""
    best = best_setting(rows)
    sections = [_in_setting(best)]
    if len(rows) > 1:
        sections.insert(
            0, [column_table(setting_columns(rows), rows), "", f"shortest steps in the mean: {setting_name(best, rows)}"]
        )
    sections.append(merged_assumption_lines([(row.topology, row.assumptions) for row in rows]))
    return "\n\n".join("\n".join(lines) for lines in sections)


def best_setting(rows: Sequence[JobsRow]) -> JobsRow:
    """Return the setting with the shortest steps in the mean of all jobs; of equal ones the first."""
    return min(rows, key=lambda row: round(_mean_step_s(row), 12))


def setting_name(row: JobsRow, rows: Sequence[JobsRow]) -> str:
    """Return what tells a setting from the others, such as `spread, shift circle`."""
    where = f"{row.topology}, " if len({each.topology for each in rows}) > 1 else ""
    shift = f", shift {row.shift}" if len({each.shift for each in rows}) > 1 else ""
    share = f", share {row.share}" if len({each.share for each in rows}) > 1 else ""
    routes = f", routes {row.routes}" if len({each.routes for each in rows}) > 1 else ""
    return f"{where}{row.placement}{shift}{share}{routes}"


def setting_columns(rows: Sequence[JobsRow]) -> list[Column[JobsRow]]:
    """Return the columns of the table of settings; routes have one if some are chosen."""
    routes: Column[JobsRow] = Column("routes", lambda row: row.routes)
    return [
        Column("topology", lambda row: row.topology),
        Column("placement", lambda row: row.placement),
        Column("shift", lambda row: row.shift),
        Column("share", lambda row: row.share),
        *([routes] if any(row.routes != OWN for row in rows) else []),
        figures("slow-down", lambda row: row.slow_down, _times),
        figures("worst job", lambda row: row.worst, _times),
        figures("mean step", _mean_step_s, format_time),
        figures("computing", lambda row: 100 * row.computing, lambda share: f"{share:.1f}", "%"),
        figures("fairness", lambda row: row.fairness, _times),
        figures("busiest link", lambda row: 100 * row.busiest, lambda share: f"{share:.1f}", "%"),
        Column("engine", lambda row: row.engine),
    ]


def _mean_step_s(row: JobsRow) -> float:
    """Return the mean of the steps of all jobs in seconds."""
    return sum(job.step_s for job in row.jobs) / len(row.jobs)


def job_columns(row: JobsRow) -> list[Column[JobBeside]]:
    """Return the columns of the table of jobs: those for which there is something to tell."""
    jobs, rank, planes = row.jobs, figures("priority", _priority), Column("planes", _planes)
    columns: list[Column[JobBeside]] = [
        Column("job", lambda job: job.name),
        Column("work", lambda job: job.work),
        figures("ranks", lambda job: job.ranks),
        Column("NPUs", lambda job: _short(job.npus)),
        rank if row.share == PRIORITY else figures("weight", lambda job: job.weight),
        *([planes] if any(job.planes for job in jobs) else []),
        figures("begins", lambda job: job.begin_s, format_time),
        figures("step alone", lambda job: job.alone_s, format_time),
        figures("beside", lambda job: job.step_s, format_time),
        Column("least to most", lambda job: f"{format_time(job.least_s)} to {format_time(job.most_s)}"),
        figures("slow-down", lambda job: job.slow_down, _times),
        Column("waits for", lambda job: job.waits_for or "-"),
    ]
    if any(job.between_s for job in jobs):
        columns.insert(
            len(columns) - 2, Column("with every message", lambda job: " to ".join(map(format_time, job.between_s or ())))
        )
    return columns


def _priority(job: JobBeside) -> int:
    """Return the priority of a job."""
    return job.priority


def _planes(job: JobBeside) -> str:
    """Return the planes of a job as text."""
    return job.planes or "all"


def pair_table(row: JobsRow) -> str:
    """Return the matrix of who slows whom as a table; of many jobs, those that slow others down, and those that are slowed."""
    numbers = range(len(row.jobs))
    slowed = [[value > 1 + SLOWED for value in of] for of in row.pairs]
    is_large = len(row.jobs) > _MOST_JOBS
    down = [i for i in numbers if not is_large or any(slowed[i])]
    across = [i for i in numbers if not is_large or any(of[i] for of in slowed)]
    if not down:
        return "no job slows another one down"
    cells = [[row.jobs[i].name, *(_times(row.pairs[i][j]) for j in across)] for i in down]
    return table(["slowed by", *(row.jobs[i].name for i in across)], cells)


def link_lines(row: JobsRow) -> Iterator[str]:
    """Yield a line for each of the jobs with which a job shares links for longest."""
    for job in row.jobs:
        for link in job.links[:_MOST_LINES]:
            together = "" if link.together_s is None else f", both send for {format_time(link.together_s)} a step"
            most = "busiest" if link.together_s is None else "longest on"
            many = f"{link.links} links, {most} " if link.links > 1 else ""
            yield f"  {job.name} with {link.beside}: {many}{link.src} to {link.dst}{together}; busy {100 * link.busy:.1f} %"
        if len(job.links) > _MOST_LINES:
            yield f"  {job.name} with {len(job.links) - _MOST_LINES} more"


def jobs_facts(row: JobsRow) -> list[Fact]:
    """Return the figures of a setting as facts."""
    steps = min(job.steps for job in row.jobs)
    return [
        Fact("slow-down", f"{row.slow_down:.3f} in the mean, {row.worst:.3f} of the worst job; {steps} steady steps or more"),
        Fact("fairness", f"{row.fairness:.4f} (Jain's index of the speeds that jobs keep; 1: all keep the same)"),
        Fact("computing", f"{100 * row.computing:.1f} % of the time of all NPUs of the jobs"),
        Fact("busiest link", f"{row.busiest_link}, busy {100 * row.busiest:.1f} % of the time"),
    ]


def jobs_title(row: JobsRow) -> str:
    """Return what runs where, in words."""
    many = f"{len(row.jobs)} jobs" if len(row.jobs) > 1 else "1 job"
    routes = f", routes {row.routes}" if row.routes != OWN else ""
    setting = f"placement {row.placement}, shift {row.shift}, share {row.share}{routes}"
    return f"{many} on {row.topology}, {setting}, timed by {row.engine} ({row.tasks:,} tasks)"


def _in_setting(row: JobsRow) -> list[str]:
    """Return the lines on the jobs in one setting."""
    links = list(link_lines(row))
    shared = ["", "shared links:", *links] if links else ["", "no link is shared"]
    pairs = ["", pair_table(row)] if len(row.jobs) > 1 else []
    return [
        jobs_title(row),
        "",
        column_table(job_columns(row), row.jobs),
        "",
        *fact_lines(jobs_facts(row)),
        *pairs,
        *shared,
    ]


def _times(value: float) -> str:
    """Return a ratio as text."""
    return f"{value:.3f}"


def _short(npus: str) -> str:
    """Return ranges of NPUs, cut where they are long."""
    return npus if len(npus) <= _MOST_LETTERS else f"{npus[: _MOST_LETTERS - 4].rpartition(',')[0]},..."
