# The only sender crashes; the others deliver its messages
#
# c alone has sent, and dies before any member knows that its messages are stable. a and b have
# received them, so they are below the trim, and both deliver them at the end of the view. In the
# next view the rounds of a silent member are nulls.
# Invariants: 8 (uniformity), 13 (null rule), 15 (liveness), INV-TRIM.

processes a b c
bootstrap
----
    24 ms  a b c: begins view 1: a b c

send c 3
run 2ms
crash c
until a begins view 2
until b begins view 2
run 10ms
----
    27 ms  c: is killed
    30 ms  a b: suspects c
    30 ms  a b: closes view 1
    30 ms  a: takes ballot 1 of a, has the rounds a 3, b 3, c 3
    32 ms  b: promises ballot 1 of a, has the rounds a 3, b 3, c 3
    33 ms  a: proposes view 2: a b (ballot 1 of a)
    34 ms  b: accepts view 2: a b (ballot 1 of a)
    34 ms  b: knows the decision: view 2: a b, trims a 3, b 3, c 3
    34 ms  b: delivers c1..3
    42 ms  a: knows the decision: view 2: a b, trims a 3, b 3, c 3
    42 ms  a: delivers c1..3
    42 ms  a b: begins view 2: a b
           nulls: a 3, b 3

send a 2
run 20ms
----
    54 ms  a b: delivers a1..2
           nulls: b 1
