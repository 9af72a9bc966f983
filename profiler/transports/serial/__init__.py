"""Serial line to a microcontroller: this computer's side of ``docs/serial-protocol.md``.

``line`` (bytes, and interruptions) → ``frames`` → ``wire`` (the frames of a session) → ``exchange``
(requests in order, none lost and none done twice) → ``session`` (the board's services).
"""
