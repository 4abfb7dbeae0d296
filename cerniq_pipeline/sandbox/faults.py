"""Ways to fail on demand: each kind of fault is a small change to the plan for one call."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Literal, get_args

from cerniq_pipeline.sandbox.numbers import phone_number
from cerniq_pipeline.sandbox.room import Provider, ViewRule, Visibility
from cerniq_pipeline.sandbox.wire import Cut

Operation = Literal["send", "history", "chats", "accounts", "upload", "slack", "webhook"]
OPERATIONS: tuple[str, ...] = (*get_args(Operation), "any")
PROVIDERS: tuple[str, ...] = get_args(Provider)
Shape = Literal["envelope", "plain", "html"]
SHAPES: tuple[Shape, ...] = get_args(Shape)


@dataclass(frozen=True)
class Failure:
    """An error to answer with; each dialect words it its own way.

    Meta has numbers where TimelinesAI has words. `meta_code` names the number where the status
    does not already say it, and `meta_status` the status where the two vendors differ.
    """

    status: int
    code: str
    message: str
    field: str | None = None
    shape: Shape = "envelope"
    headers: tuple[tuple[str, str], ...] = ()
    meta_code: int | None = None
    meta_status: int | None = None


@dataclass(frozen=True)
class LateFailure:
    """A failure that is told only after the message was accepted."""

    code: int
    title: str


@dataclass(frozen=True)
class Telling:
    """How a webhook is told: how often, how late, and whether a later one may come before it.

    A `held` one waits for a later one of the same chat, but no longer than this.
    """

    times: int = 1
    after: timedelta = timedelta()
    held: timedelta | None = None

    def in_line(self) -> dict[str, Any]:
        """The telling as a line of the journal has it."""
        held = None if self.held is None else self.held.total_seconds()
        return {"times": self.times, "after": self.after.total_seconds(), "held": held}

    @classmethod
    def from_line(cls, fields: Mapping[str, Any]) -> Telling:
        """What `in_line` wrote."""
        held = None if fields["held"] is None else timedelta(seconds=fields["held"])
        return cls(fields["times"], timedelta(seconds=fields["after"]), held)


TOLD_ONCE = Telling()


@dataclass(frozen=True)
class Plan:
    """What will be done with one call; a plan without faults serves it honestly."""

    accepted: bool = True
    failure: Failure | None = None
    as_phone: str | None = None
    delivered: bool = True
    fails_later: LateFailure | None = None
    window_closed_at_once: bool = False
    delay: timedelta = timedelta()
    cut: Cut | None = None
    view: tuple[ViewRule, ...] = ()
    telling: Telling = TOLD_ONCE
    faults: tuple[str, ...] = ()


@dataclass(frozen=True)
class Call:
    """What a fault may be aimed at; `phone` is None when a call is about no single phone.

    A webhook is a call too, the other way round: `recipient` is then the other end of the chat.
    """

    operation: Operation
    phone: str | None = None
    recipient: str | None = None
    provider: Provider = "timelinesai"
    event_type: str | None = None


class BadFault(Exception):
    """A fault that was asked for wrongly, and what is wrong with it."""


@dataclass
class Fault:
    """One fault in force, with its counters."""

    id: str
    kind: str
    provider: str | None
    phone: str | None
    recipient: str | None
    operation: str
    after: int
    times: int | None
    probability: float
    seed: int
    params: Mapping[str, Any]
    dice: random.Random = field(repr=False)
    seen: int = 0
    fired: int = 0

    @property
    def active(self) -> bool:
        """Whether it can still strike."""
        return self.times is None or self.fired < self.times

    def aims_at(self, call: Call) -> bool:
        """Whether this call is one that the fault was made for."""
        view, webhook = KINDS[self.kind].view, KINDS[self.kind].webhook
        if webhook != (call.operation == "webhook"):
            return False
        if self.params.get("event_type") not in (None, call.event_type):
            return False
        if self.operation == "any":
            # Any operation of WhatsApp: alerts about it still get through unless aimed at by name.
            right_operation = call.operation != "slack" and not (view and call.operation == "send")
        else:
            right_operation = self.operation == call.operation
        right_provider = self.provider in (None, call.provider)
        # A list over many phones is shown with one phone's messages missing or doubled.
        right_phone = self.phone in (None, call.phone) or (view and call.phone is None)
        right_recipient = self.recipient in (None, call.recipient)
        return right_operation and right_provider and right_phone and right_recipient

    def strikes(self) -> bool:
        """Count one matching call, and say whether the fault hits it."""
        if not self.active:
            return False
        self.seen += 1
        if self.seen <= self.after or self.dice.random() >= self.probability:
            return False
        self.fired += 1
        return True

    def described(self) -> dict[str, Any]:
        """The fault as the control API shows it."""
        return {
            "id": self.id,
            "kind": self.kind,
            "provider": self.provider,
            "phone": self.phone,
            "recipient": self.recipient,
            "operation": self.operation,
            "after": self.after,
            "times": self.times,
            "probability": self.probability,
            "seed": self.seed,
            **self.params,
            "seen": self.seen,
            "fired": self.fired,
            "active": self.active,
        }


# --- the kinds -----------------------------------------------------------------------------------


def late(plan: Plan, fault: Fault) -> Plan:
    """Do the work at once, answer long after."""
    return replace(plan, delay=plan.delay + timedelta(milliseconds=fault.params["delay_ms"]))


def accept_then_cut(plan: Plan, fault: Fault) -> Plan:
    """Accept, then close without a byte of an answer."""
    return replace(plan, accepted=True, cut=Cut("nothing", reset=fault.params["reset"]))


def accept_then_cut_after_headers(plan: Plan, _: Fault) -> Plan:
    """Accept, send the headers of the good news, and close."""
    return replace(plan, accepted=True, cut=Cut("headers"))


def accept_then_truncate(plan: Plan, fault: Fault) -> Plan:
    """Accept, send half of the JSON (or the answer's first `at_byte` bytes), and close."""
    at_byte = fault.params["at_byte"]
    return replace(plan, accepted=True, cut=Cut("half" if at_byte is None else at_byte))


def cut_before_accept(plan: Plan, fault: Fault) -> Plan:
    """Read the request, accept nothing, reset the connection."""
    return replace(plan, accepted=False, cut=Cut("nothing", reset=fault.params["reset"]))


def rate_limited(plan: Plan, fault: Fault) -> Plan:
    """Refuse with 429, in the documented sample's shape or in the usual envelope."""
    failure = Failure(
        429,
        "rate_limit_exceeded",
        "Rate limit exceeded. Please retry after a short delay.",
        shape=fault.params["shape"],
        headers=_retry_after(fault),
    )
    return replace(plan, accepted=False, failure=failure)


def refuse(plan: Plan, fault: Fault) -> Plan:
    """Refuse with any status, words and shape: every row of a vendor's table of errors."""
    failure = Failure(
        fault.params["status"],
        fault.params["code"],
        fault.params["message"],
        shape=fault.params["shape"],
        headers=_retry_after(fault),
        meta_code=fault.params["meta_code"],
    )
    return replace(plan, accepted=False, failure=failure)


def suspended(plan: Plan, fault: Fault) -> Plan:
    """Refuse because a bill is not paid."""
    failure = Failure(403, fault.params["code"], fault.params["message"], meta_code=131042)
    return replace(plan, accepted=False, failure=failure)


def quota_exceeded(plan: Plan, fault: Fault) -> Plan:
    """Refuse because the period's messages are used up."""
    failure = Failure(
        fault.params["status"],
        "quota_exceeded",
        "Messaging quota exceeded for the current billing period",
        headers=_retry_after(fault),
        meta_code=80007,
    )
    return replace(plan, accepted=False, failure=failure)


def server_error(plan: Plan, fault: Fault) -> Plan:
    """Break with a 5xx, before or after the message was accepted."""
    failure = Failure(fault.params["status"], "internal_error", "Internal server error")
    return replace(plan, accepted=fault.params["accepted"], failure=failure)


def html_error(plan: Plan, fault: Fault) -> Plan:
    """Answer with the error page of something in front of the API."""
    failure = Failure(fault.params["status"], "", "Temporarily unavailable", shape="html")
    return replace(plan, accepted=fault.params["accepted"], failure=failure)


def unauthorized(plan: Plan, _: Fault) -> Plan:
    """Refuse the token."""
    return replace(plan, accepted=False, failure=Failure(401, "invalid_token", "Invalid token"))


def forbidden(plan: Plan, _: Fault) -> Plan:
    """Refuse the right to do this."""
    failure = Failure(403, "permission_denied", "Permission denied")
    return replace(plan, accepted=False, failure=failure)


def banned(plan: Plan, fault: Fault) -> Plan:
    """Refuse because WhatsApp has shut this phone out."""
    failure = Failure(
        fault.params["status"],
        "validation_error",
        fault.params["message"],
        meta_code=131031,
        meta_status=403,
    )
    return replace(plan, accepted=False, failure=failure)


def invalid_number(plan: Plan, _: Fault) -> Plan:
    """Refuse the recipient."""
    failure = Failure(400, "validation_error", "Phone number invalid", meta_code=131026)
    return replace(plan, accepted=False, failure=failure)


def wrong_phone(plan: Plan, fault: Fault) -> Plan:
    """Accept, but really send from another phone."""
    return replace(plan, accepted=True, as_phone=fault.params["as_phone"])


def not_delivered(plan: Plan, _: Fault) -> Plan:
    """Accept, but never let the message leave the phone: connected, and dead all the same."""
    return replace(plan, accepted=True, delivered=False)


def fails_later(plan: Plan, fault: Fault) -> Plan:
    """Accept, then tell that the message failed."""
    late_failure = LateFailure(fault.params["meta_code"], fault.params["title"])
    return replace(plan, accepted=True, fails_later=late_failure)


def window_closed_at_once(plan: Plan, _: Fault) -> Plan:
    """Refuse at once what the closed 24-hour window would only let fail later."""
    return replace(plan, window_closed_at_once=True)


def error_in_ok(plan: Plan, fault: Fault) -> Plan:
    """Answer 200 with an error inside."""
    failure = Failure(200, "internal_error", fault.params["message"])
    return replace(plan, accepted=fault.params["accepted"], failure=failure)


def redirect(plan: Plan, fault: Fault) -> Plan:
    """Point to another host."""
    failure = Failure(
        fault.params["status"],
        "",
        "Moved",
        shape="html",
        headers=(("location", fault.params["location"]),),
    )
    return replace(plan, accepted=False, failure=failure)


def history_lag(plan: Plan, fault: Fault) -> Plan:
    """Show messages in lists only some time after they were accepted."""
    lag = timedelta(milliseconds=fault.params["visible_after_ms"])
    return _with_view(plan, fault, Visibility(shown_after=lag))


def history_hidden(plan: Plan, fault: Fault) -> Plan:
    """Never show the messages in lists."""
    return _with_view(plan, fault, Visibility(shown_after=None))


def history_twice(plan: Plan, fault: Fault) -> Plan:
    """Show every message several times."""
    return _with_view(plan, fault, Visibility(copies=fault.params["copies"]))


def webhook_dropped(plan: Plan, _: Fault) -> Plan:
    """Never tell; only history shows it."""
    return _with_telling(plan, times=0)


def webhook_duplicated(plan: Plan, fault: Fault) -> Plan:
    """Tell several times."""
    return _with_telling(plan, times=plan.telling.times * fault.params["copies"])


def webhook_delayed(plan: Plan, fault: Fault) -> Plan:
    """Tell late; what happens in between may be told before."""
    delay = timedelta(seconds=fault.params["seconds"])
    return _with_telling(plan, after=plan.telling.after + delay)


def webhook_shuffled(plan: Plan, fault: Fault) -> Plan:
    """Hold back until a later one of the same chat was told, or `seconds` at the longest."""
    return _with_telling(plan, held=timedelta(seconds=fault.params["seconds"]))


def _with_telling(plan: Plan, **change: Any) -> Plan:
    return replace(plan, telling=replace(plan.telling, **change))


def _retry_after(fault: Fault) -> tuple[tuple[str, str], ...]:
    wait = fault.params["retry_after"]
    return () if wait is None else (("retry-after", str(wait)),)


def _with_view(plan: Plan, fault: Fault, visibility: Visibility) -> Plan:
    return replace(plan, view=(*plan.view, ViewRule(fault.phone, visibility)))


# --- what each kind can be told ------------------------------------------------------------------


@dataclass(frozen=True)
class Param:
    """One parameter of a kind: what it must be, and what it is when not given."""

    must_be: str
    fits: Callable[[Any], bool]
    default: Any = None
    required: bool = False


@dataclass(frozen=True)
class Kind:
    """One way to fail.

    `view` kinds change what lists show, `webhook` kinds what we are told, the others how a call
    is answered.
    """

    apply: Callable[[Plan, Fault], Plan]
    params: Mapping[str, Param] = field(default_factory=dict)
    view: bool = False
    webhook: bool = False


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_seconds(value: object) -> bool:
    return isinstance(value, int | float) and not _is_flag(value) and 0 <= value < 1e9


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_words(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _is_phone(value: object) -> bool:
    return isinstance(value, str) and phone_number(value) == value


def _flag(*, default: bool) -> Param:
    return Param("true or false", _is_flag, default)


def _count(default: int | None) -> Param:
    return Param(
        "a whole number, 0 or more", lambda value: value is default or _is_count(value), default
    )


def _words(default: str) -> Param:
    return Param("a text", _is_words, default)


def _status(lowest: int, highest: int, default: int) -> Param:
    return Param(
        f"a status from {lowest} to {highest}",
        lambda value: _is_count(value) and lowest <= value <= highest,
        default,
    )


_ANY_SHAPE = Param(f"one of {', '.join(SHAPES)}", lambda value: value in SHAPES, "envelope")
_NO_QUOTA_STATUS = Param("403 or 429", lambda value: value in (403, 429), 403)
_SHAPE = Param("plain or envelope", lambda value: value in ("plain", "envelope"), "plain")
_AS_PHONE = Param("a phone number like +40700000001", _is_phone, required=True)

_SECONDS = Param("seconds, 0 or more", _is_seconds, 5)
_ABOUT = {
    "event_type": Param(
        "an event type like message:received:new, or null",
        lambda value: value is None or _is_words(value),
    )
}

KINDS: Mapping[str, Kind] = {
    "late": Kind(late, {"delay_ms": _count(1000)}),
    "accept_then_cut": Kind(accept_then_cut, {"reset": _flag(default=False)}),
    "accept_then_cut_after_headers": Kind(accept_then_cut_after_headers),
    "accept_then_truncate": Kind(accept_then_truncate, {"at_byte": _count(None)}),
    "cut_before_accept": Kind(cut_before_accept, {"reset": _flag(default=True)}),
    "rate_limited": Kind(rate_limited, {"retry_after": _count(None), "shape": _SHAPE}),
    "refuse": Kind(
        refuse,
        {
            "status": _status(400, 599, 400),
            "code": _words("validation_error"),
            "message": _words("Refused"),
            "shape": _ANY_SHAPE,
            "meta_code": _count(None),
            "retry_after": _count(None),
        },
    ),
    "suspended": Kind(
        suspended,
        {
            "code": _words("permission_denied"),
            "message": _words("WhatsApp account is suspended: the subscription is not paid"),
        },
    ),
    "quota_exceeded": Kind(
        quota_exceeded, {"status": _NO_QUOTA_STATUS, "retry_after": _count(None)}
    ),
    "server_error": Kind(
        server_error, {"status": _status(500, 504, 500), "accepted": _flag(default=False)}
    ),
    "html_error": Kind(
        html_error, {"status": _status(400, 599, 502), "accepted": _flag(default=False)}
    ),
    "unauthorized": Kind(unauthorized),
    "forbidden": Kind(forbidden),
    "banned": Kind(
        banned,
        {"status": _status(400, 499, 400), "message": _words("WhatsApp account is banned")},
    ),
    "invalid_number": Kind(invalid_number),
    "wrong_phone": Kind(wrong_phone, {"as_phone": _AS_PHONE}),
    "not_delivered": Kind(not_delivered),
    "fails_later": Kind(
        fails_later, {"meta_code": _count(131026), "title": _words("Message undeliverable")}
    ),
    "window_closed_at_once": Kind(window_closed_at_once),
    "error_in_ok": Kind(
        error_in_ok,
        {"message": _words("Something went wrong"), "accepted": _flag(default=False)},
    ),
    "redirect": Kind(
        redirect,
        {"status": _status(301, 308, 301), "location": _words("https://elsewhere.invalid/")},
    ),
    "history_lag": Kind(history_lag, {"visible_after_ms": _count(1000)}, view=True),
    "history_hidden": Kind(history_hidden, view=True),
    "history_twice": Kind(history_twice, {"copies": _count(2)}, view=True),
    "webhook_dropped": Kind(webhook_dropped, _ABOUT, webhook=True),
    "webhook_duplicated": Kind(webhook_duplicated, {**_ABOUT, "copies": _count(2)}, webhook=True),
    "webhook_delayed": Kind(webhook_delayed, {**_ABOUT, "seconds": _SECONDS}, webhook=True),
    "webhook_shuffled": Kind(webhook_shuffled, {**_ABOUT, "seconds": _SECONDS}, webhook=True),
}

_PROBABILITY = Param(
    "a number from 0 to 1",
    lambda value: isinstance(value, int | float) and not _is_flag(value) and 0 <= value <= 1,
    1.0,
)
_COMMON: Mapping[str, Param] = {
    "provider": Param(
        f"one of {', '.join(PROVIDERS)}, or null",
        lambda value: value is None or value in PROVIDERS,
    ),
    "phone": Param(
        "a phone number like +40700000001, or null",
        lambda value: value is None or _is_phone(value),
    ),
    "recipient": Param("an address, or null", lambda value: value is None or _is_words(value)),
    "operation": Param(f"one of {', '.join(OPERATIONS)}", lambda value: value in OPERATIONS),
    "after": _count(0),
    "times": _count(None),
    "probability": _PROBABILITY,
    "seed": _count(0),
}


class FaultBook:
    """The faults in force, in the order they were asked for."""

    def __init__(self) -> None:
        self._faults: dict[str, Fault] = {}
        self._issued = 0

    def add(self, asked: Mapping[str, Any]) -> Fault:
        """Put one fault in force; BadFault says what is wrong with it."""
        name = asked.get("kind")
        if not isinstance(name, str) or name not in KINDS:
            raise BadFault(f"kind must be one of {', '.join(KINDS)}")
        kind = KINDS[name]
        unknown = asked.keys() - {"kind"} - _COMMON.keys() - kind.params.keys()
        if unknown:
            raise BadFault(f"{name} has no parameter {', '.join(sorted(unknown))}")
        common = {key: _taken(asked, key, param) for key, param in _COMMON.items()}
        common["operation"] = common["operation"] or _usual_operation(kind)
        if kind.webhook != (common["operation"] == "webhook"):
            raise BadFault(f"{name} cannot be about {common['operation']}")
        params = {key: _taken(asked, key, param) for key, param in kind.params.items()}
        self._issued += 1
        fault = Fault(
            id=f"f{self._issued}",
            kind=name,
            params=params,
            dice=random.Random(common["seed"]),
            **common,
        )
        self._faults[fault.id] = fault
        return fault

    def all(self) -> list[Fault]:
        """Every fault that was not deleted, spent ones too."""
        return list(self._faults.values())

    def remove(self, fault_id: str) -> bool:
        """Lift one fault; False when there is no such fault."""
        return self._faults.pop(fault_id, None) is not None

    def clear(self) -> int:
        """Lift all faults, and say how many there were."""
        count = len(self._faults)
        self._faults.clear()
        return count

    def plan(self, call: Call, start: Plan = Plan()) -> Plan:
        """What to do with this call: every fault that strikes changes the plan, in order."""
        plan = start
        for fault in self._faults.values():
            if fault.aims_at(call) and fault.strikes():
                plan = KINDS[fault.kind].apply(plan, fault)
                plan = replace(plan, faults=(*plan.faults, fault.kind))
        return plan


def _usual_operation(kind: Kind) -> str:
    if kind.webhook:
        return "webhook"
    return "any" if kind.view else "send"


def _taken(asked: Mapping[str, Any], key: str, param: Param) -> Any:
    if key not in asked:
        if param.required:
            raise BadFault(f"{key} is missing: {param.must_be}")
        return param.default
    if not param.fits(asked[key]):
        raise BadFault(f"{key} must be {param.must_be}")
    return asked[key]
