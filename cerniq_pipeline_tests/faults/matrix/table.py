"""Every row of the matrix, as a table: adding one is adding a line."""

from __future__ import annotations

from collections.abc import Sequence

from cerniq_pipeline_tests.faults.matrix.answers import (
    accepted_and_silent,
    history_lies,
    provider_in_trouble,
)
from cerniq_pipeline_tests.faults.matrix.bad_data import spoilt_on_the_way
from cerniq_pipeline_tests.faults.matrix.clocks import clock_jumps
from cerniq_pipeline_tests.faults.matrix.copies import spoken_to_on_the_way
from cerniq_pipeline_tests.faults.matrix.counting import (
    many_want_the_last,
    redis_breaks,
    redis_disagrees,
)
from cerniq_pipeline_tests.faults.matrix.deaths import (
    killed_at_every_point,
    killed_at_random_moments,
    stood_still_past_its_lease,
)
from cerniq_pipeline_tests.faults.matrix.decisions import killed_while_deciding
from cerniq_pipeline_tests.faults.matrix.erasing import erased_on_the_way
from cerniq_pipeline_tests.faults.matrix.histories import (
    chats_unreadable,
    look_ups_disturbed,
    shown_late,
)
from cerniq_pipeline_tests.faults.matrix.phones import phone_lost, sent_from_another_phone
from cerniq_pipeline_tests.faults.matrix.product import (
    clicked_ten_times,
    daemon_killed,
    everything_twice,
    on_the_product,
    run_and_code_server_killed,
)
from cerniq_pipeline_tests.faults.matrix.refusals import refused_by_every_phone
from cerniq_pipeline_tests.faults.matrix.replies import every_order, webhooks_dropped
from cerniq_pipeline_tests.faults.matrix.scenario import Scenario
from cerniq_pipeline_tests.faults.matrix.servers import postgres_dies, servers_frozen
from cerniq_pipeline_tests.faults.matrix.stage import House
from cerniq_pipeline_tests.faults.matrix.stops import (
    stop_in_every_spelling,
    stop_races_claim,
    stop_while_all_is_down,
)
from cerniq_pipeline_tests.faults.matrix.told_stops import stop_told_as_a_status
from cerniq_pipeline_tests.faults.matrix.webhooks import (
    fed_garbage,
    forged,
    replayed,
    sent_too_much,
    slow_senders,
    token_rotated,
)

FRESH = House.stage

SCENARIOS: Sequence[Scenario] = (
    Scenario(1, "kill -9 of a shift at every crash point", killed_at_every_point, FRESH, 3),
    Scenario(2, "kill -9 of shifts at random moments", killed_at_random_moments, FRESH, 1),
    *(
        Scenario(row, fault, run, on_the_product, repeats=1, brief=False)
        for row, fault, run in (
            (3, "kill -9 of runs and code server together", run_and_code_server_killed),
            (4, "kill -9 of the daemon", daemon_killed),
            (5, "two daemons and two dispatches at once", everything_twice),
            (6, "a dispatch launched ten times, and run again", clicked_ten_times),
        )
    ),
    Scenario(7, "kill -9 during a person's decision", killed_while_deciding, FRESH, 5),
    Scenario(8, "a shift frozen past its lease", stood_still_past_its_lease, FRESH, 10),
    Scenario(9, "Postgres, Redis and provider frozen", servers_frozen, FRESH, 1),
    Scenario(10, "Postgres restarted, killed, a worker killed", postgres_dies, FRESH, 2),
    Scenario(15, "Redis down, full, read-only, emptied, spoilt", redis_breaks, FRESH, 3),
    Scenario(16, "Redis counts less or more than the ledger", redis_disagrees, FRESH, 5),
    Scenario(17, "64 claim the last place of a phone at once", many_want_the_last, FRESH, 5),
    Scenario(18, "accepted, then silence", accepted_and_silent, FRESH, 1),
    Scenario(19, "history shows it late, never or twice", history_lies, FRESH, 5),
    Scenario(20, "429, 5xx, HTML, redirects for minutes", provider_in_trouble, FRESH, 2),
    Scenario(21, "the provider sends from another phone", sent_from_another_phone, FRESH, 3),
    Scenario(22, "a phone banned or disconnected on the way", phone_lost, FRESH, 5),
    Scenario(23, "clock jumps, odd days, wrong time zone", clock_jumps, FRESH, 5),
    Scenario(24, "one webhook a thousand times, and late", replayed, FRESH, 2),
    Scenario(25, "six events in all their orders", every_order, FRESH, 1),
    Scenario(26, "no webhook for six hours", webhooks_dropped, FRESH, 3),
    Scenario(27, "garbage with the right token", fed_garbage, FRESH, 1),
    Scenario(28, "too much, and lies about how much", sent_too_much, FRESH, 1),
    Scenario(29, "hundreds of slow senders", slow_senders, FRESH, 1),
    Scenario(30, "forged webhooks", forged, FRESH, 2),
    Scenario(34, "a stop while nothing else works", stop_while_all_is_down, FRESH, 2),
    Scenario(35, "a stop and a claim in the same moment", stop_races_claim, FRESH, 1),
    Scenario(36, "a stop on one channel, in one spelling", stop_in_every_spelling, FRESH, 2),
    Scenario(37, "erased on the way, and imported again", erased_on_the_way, FRESH, 3),
    Scenario(38, "the token changed while events come", token_rotated, FRESH, 2),
    Scenario(40, "a stop told as a status, its hearer killed", stop_told_as_a_status, FRESH, 3),
    Scenario(41, "a message that every phone refuses", refused_by_every_phone, FRESH, 5),
    Scenario(42, "a reply while a copy's message is in flight", spoken_to_on_the_way, FRESH, 3),
    Scenario(43, "chats that cannot be read, among many", chats_unreadable, FRESH, 2),
    Scenario(44, "look-ups that cannot be read, odd rows", look_ups_disturbed, FRESH, 3),
    Scenario(45, "bad data in random leads", spoilt_on_the_way, FRESH, 5),
    Scenario(46, "a history that lags for hours, and lies", shown_late, FRESH, 3),
)
