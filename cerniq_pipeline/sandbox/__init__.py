"""A local stand-in for TimelinesAI that keeps its own journal and fails on demand.

It is the judge in tests, so it shares no code with what it judges: nothing here imports anything
of ours outside this package.

    server    takes connections            wire      HTTP at the socket, and where it is cut
    desk      what happens to one call     journal   on disk before anybody is answered
    doors     what a dialect is made of    room      accounts, chats, messages
    public_api, v1_api   the two dialects  faults    each kind a small change to a plan
    sending   from a body to a message     control, page   for tests and for people
"""
