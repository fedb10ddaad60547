# The leader crashes after its ballot, before its proposal
#
# e dies, and a, the voter of the lowest rank, takes a ballot. The others promise it. a dies before
# it has read their promises. No row shows an accepted value, so the next leader, b, takes a higher
# ballot, and makes a value of its own, without a and without e.
# Invariants: 5 (one view sequence), INV-PROMISE, INV-BIND, INV-QUORUM.

processes a b c d e
bootstrap
----
    26 ms  a b c d e: begins view 1: a b c d e

send c 2
run 20ms
----
    31 ms  a b c d e: delivers c1..2
           nulls: a 2, b 2, d 1, e 1

crash e
until b promises
crash a
until b begins view 2
until c begins view 2
until d begins view 2
expect view 2 at b c d: b c d
expect delivered b c d: c1 c2
----
    47 ms  e: is killed
    50 ms  a b c d: suspects e
    50 ms  a b c d: closes view 1
    50 ms  a: takes ballot 1 of a, has the rounds a 2, b 2, c 2, d 1, e 1
    51 ms  d: promises ballot 1 of a, has the rounds a 2, b 2, c 2, d 1, e 1
    52 ms  b c: promises ballot 1 of a, has the rounds a 2, b 2, c 2, d 1, e 1
    52 ms  a: is killed
    55 ms  b c d: suspects a
    55 ms  b: takes ballot 2 of b, has the rounds a 2, b 2, c 2, d 1, e 1
    56 ms  d: promises ballot 2 of b, has the rounds a 2, b 2, c 2, d 1, e 1
    58 ms  c: promises ballot 2 of b, has the rounds a 2, b 2, c 2, d 1, e 1
    59 ms  b: proposes view 2: b c d (ballot 2 of b)
    60 ms  c d: accepts view 2: b c d (ballot 2 of b)
    61 ms  b: knows the decision: view 2: b c d, trims a 2, b 2, c 2, d 1, e 1
    62 ms  c d: knows the decision: view 2: b c d, trims a 2, b 2, c 2, d 1, e 1
    63 ms  b c d: begins view 2: b c d
