"""What calls of models cost, by list prices: for the command line and for the chat."""

from collections.abc import Iterable

from msgspec import Struct

from steno.agents import Agents
from steno.config import ConfigError
from steno.journal.facts import HelperStarted, Record, StepStarted
from steno.journal.usage import UsageTotal
from steno.providers import catalogue
from steno.providers.catalogue import About, Offer, Table

DOLLARS_MIN = 0.001
ESTIMATE = "costs are estimates, by list prices"


class Prices:
    """What is known of models: by the configuration, the home's own table, and ours."""

    def __init__(self, wiring: Agents) -> None:
        self._wiring = wiring
        self._table: Table | None = None
        self._known: dict[str, About] = {}

    def about(self, spec: str) -> About:
        """Raises `ConfigError` if the home's own table cannot be used."""
        known = self._known.get(spec)
        if known is not None:
            return known
        if self._table is None:
            try:
                self._table = catalogue.table(self._wiring.where.home)
            except ValueError as error:
                raise ConfigError(str(error)) from error
        known = catalogue.told(spec, About(), self._table, self._wiring.config.models)
        self._known[spec] = known
        return known

    def with_told(self, offer: Offer) -> About:
        """With what its server says of it, which counts more than our table."""
        self.about(offer.spec)
        table = self._table or Table({})
        return catalogue.told(
            offer.spec, offer.about, table, self._wiring.config.models
        )

    def context_max(self, spec: str) -> int:
        """The tokens that a model takes; 0 if that is not known."""
        return self._wiring.config.context_max(spec) or self.about(spec).context or 0


class Call(Struct, frozen=True):
    """One call of a model; its cost is None where price or count is not known."""

    at_ms: int
    model: str
    usage: UsageTotal
    cost: float | None


class Spending:
    """What a session cost so far, about; counted on as it grows. `own` is its model."""

    def __init__(self, own: str, prices: Prices) -> None:
        self.upto = 0
        self.cost: float | None = None
        self._own, self._prices = own, prices
        self._models: dict[int, str] = {}

    def take(self, records: Iterable[Record]) -> None:
        """What was counted before is left out."""
        new = [record for record in records if record.seq > self.upto]
        for call in calls(new, self._own, self._prices, self._models):
            if call.cost is not None:
                self.cost = (self.cost or 0.0) + call.cost
        self.upto = new[-1].seq if new else self.upto


def calls(
    records: Iterable[Record],
    own: str,
    prices: Prices,
    models: dict[int, str] | None = None,
) -> Iterable[Call]:
    """The calls of a session, of the facts that began and ended them. `own` is the model of those
    whose beginning is neither among them nor in `models`, by seq."""
    models = {} if models is None else models
    for record in records:
        if isinstance(record.fact, StepStarted | HelperStarted):
            models[record.seq] = record.fact.model
            continue
        began = getattr(record.fact, "step", getattr(record.fact, "started", 0))
        model = models.get(began, own or "unknown")
        usage = UsageTotal()
        usage.apply(record)
        yield Call(record.at_ms, model, usage, prices.about(model).cost(usage))


def dollars(cost: float) -> str:
    """In as many digits as say something."""
    if 0 < cost < DOLLARS_MIN:
        return f"under ${DOLLARS_MIN}"
    return f"${cost:.2f}" if cost >= 0.095 or cost == 0 else f"${cost:.3f}"
