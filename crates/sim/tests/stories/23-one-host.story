# Members of one host: the kernel proves a death
#
# On one host the kernel reports the end of a process, and its row is memory that no process writes
# any more. A dead voter with a final row counts like a promise, so the last of three members
# continues alone, which it could not do between hosts.
# Invariants: 6 (primary component), 25 (a death is the end of a process), INV-QUORUM.

processes a,b,c
bootstrap
----
    10 ms  a b c: begins view 1: a b c

send a 1
send b 1
run 10ms
----
    10 ms  a b c: delivers a1 b1

crash a
until b begins view 2
until c begins view 2
crash b
until c begins view 3
expect view 3 at c: c
send c 1
run 10ms
----
    20 ms  a: is killed
    20 ms  b c: suspects a
    20 ms  b c: closes view 1
    20 ms  b: takes ballot 1 of b, has the rounds a 1, b 1, c 0
    20 ms  c: promises ballot 1 of b, has the rounds a 1, b 1, c 0
    20 ms  b: proposes view 2: b c (ballot 1 of b)
    20 ms  c: accepts view 2: b c (ballot 1 of b)
    20 ms  b c: knows the decision: view 2: b c, trims a 1, b 1, c 0
    20 ms  b c: begins view 2: b c
    20 ms  b: is killed
    21 ms  c: suspects b
    21 ms  c: closes view 2
    21 ms  c: takes ballot 1 of c
    21 ms  c: proposes view 3: c (ballot 1 of c)
    21 ms  c: knows the decision: view 3: c, no trims
    21 ms  c: begins view 3: c
    21 ms  c: delivers c1
