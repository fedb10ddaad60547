# An observer that is lapped is told how much it missed
#
# o observes and acknowledges nothing, so the members may overwrite frames that it has not read. It
# is paused while more messages are sent than a ring holds. When it continues it goes on behind the
# gap, and reports the number of rounds.
# Invariants: 1 (total order), 2 (no invention).

processes a b c
subgroup main window 4
bootstrap
----
    24 ms  a b c: begins view 1: a b c

observe o
until o follows
run 50ms
send a 2
run 100ms
----
    25 ms  o: starts as an observer
    39 ms  o: follows view 1
    91 ms  o: is told a1..2
    91 ms  a b c: delivers a1..2
           nulls: b 1, c 1

pause o 800ms
send a 20
run 1s
----
   192 ms  a b c: delivers a3..22
   989 ms  o: is lapped, and is told that it missed 58 rounds
           nulls: b 20, c 20

send b 1
run 200ms
expect delivered o: a1 a2 b1
----
  1191 ms  o: is told b1
  1191 ms  a b c: delivers b1
