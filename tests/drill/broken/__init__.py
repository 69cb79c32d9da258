"""Casts for a drill whose library or server is broken, to show that the drill notices.

Each package replaces processes of the drill by its modules of the same names
(`twinbus drill --cast PACKAGE`), which put a defect into the product and then play the
usual part:

    acknowledge_early   a sender says "accepted" before the backlog has the message, and
                        then its process dies
    complete_early      the syphon takes a message out of the backlog before it has sent
                        it home, and then its process dies
    deliver_pings       the primary keeps pings like any other message
"""
