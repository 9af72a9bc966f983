"""A microcontroller on a serial line: this computer's side of ``docs/serial-protocol.md``.

``line`` (bytes, and interruptions) → ``frames`` → ``wire`` (the frames of a session) →
``exchange`` (requests in order, nothing lost and nothing done twice) → ``session`` (what can be
asked).
"""
