"""Numbers and facts as a person reads them. Pure."""

from datetime import UTC, datetime


def seconds(value: float) -> str:
    """0.25 s, 44.6 s, 2 min 11 s, 1 h 2 min."""
    if value < 60:
        return f"{value:.2g} s" if value < 1 else f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def size(value: int) -> str:
    """Bytes in powers of 1000: 6.4 GB."""
    number = float(value)
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} TB"


def spread(values: list[float]) -> str:
    """6.8 s, or 6.8 s to 9.1 s."""
    low, high = seconds(min(values)), seconds(max(values))
    return low if low == high else f"{low} to {high}"


def date(moment: datetime) -> str:
    return f"{utc(moment):%Y-%m-%d}"


def instant(moment: datetime) -> str:
    return f"{utc(moment):%Y-%m-%d %H:%M} UTC"


def utc(moment: datetime) -> datetime:
    """A moment that names no zone is taken as UTC, never as this machine's."""
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
