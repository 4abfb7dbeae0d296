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
    house     joins all of it

It also calls: whoever has subscribed is told by webhook what happens, as each vendor does.

    notices   from a line of the journal to what is told of it
    timelinesai_events, meta_events      in the vendors' words
    hooks     queues, attempts, what became of each     caller    HTTP from this end
    subscriptions   whom to call: loopback only

And it plays the people at the other end, if told to.

    voices    what they write      cast    who says what, and when      players    who makes them

What a vendor tells later is in the journal: `inbound`, `reaction` and `call` for what people did,
`status` for messages that failed after they were accepted, `webhook` for each attempt to tell.
"""
