# Two of five members crash at once
#
# Three of five voters are more than half, so one agreement leaves out both. The messages of both
# end at their trims.
# Invariants: 4 (atomicity), 6 (primary component), INV-QUORUM.

processes a b c d e
bootstrap
----
    26 ms  a b c d e: begins view 1: a b c d e

send a 2
send d 3
send e 3
run 2ms
crash d e
until a begins view 2
until b begins view 2
until c begins view 2
run 20ms
expect view 2 at a b c: a b c
----
    29 ms  d e: is killed
    32 ms  a b c: suspects d e
    32 ms  a b c: closes view 1
    32 ms  a: takes ballot 1 of a, has the rounds a 3, b 3, c 3, d 3, e 3
    33 ms  b: promises ballot 1 of a, has the rounds a 3, b 3, c 3, d 3, e 3
    34 ms  c: promises ballot 1 of a, has the rounds a 3, b 3, c 3, d 3, e 3
    35 ms  a: proposes view 2: a b c (ballot 1 of a)
    36 ms  b c: accepts view 2: a b c (ballot 1 of a)
    44 ms  a b c: knows the decision: view 2: a b c, trims a 3, b 3, c 3, d 3, e 3
    44 ms  a b c: delivers a1 d1 e1 a2 d2 e2 d3 e3
    46 ms  a b c: begins view 2: a b c
           nulls: a 1, b 3, c 3

send b 2
run 20ms
----
    69 ms  a b c: delivers b1..2
           nulls: a 2, c 1
