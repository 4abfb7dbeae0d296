"""A local stand-in for the outside vendors that keeps its own journal and fails on demand.

It is the judge in tests, so it shares no code with what it judges: nothing here imports anything
of ours outside this package.

    server    takes connections            wire      HTTP at the socket, and where it is cut
    desk      what happens to one call     journal   on disk before anybody is answered
    doors     what a dialect is made of    room      accounts, chats, messages, files
    sending   from a body to a message     files     multipart bodies, links, limits of size
    faults    each kind a small change to a plan
    public_api, v1_api   TimelinesAI's two dialects; meta_api, slack_api   the other vendors
    control, page        for tests and for people

What a vendor tells later is in the journal: `inbound` for what people wrote, `status` for messages
that failed after they were accepted.
"""
