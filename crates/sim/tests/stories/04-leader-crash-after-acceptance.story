# The leader crashes after some members have accepted its proposal
#
# e dies. The links from a to c and d are cut before a has proposed, so b alone reads the proposal
# of a, and accepts it. Then a dies. c and d read the value in the row of b, and accept it before
# they promise the ballot of b. b proposes the same value under its own ballot. So the next view has
# a in it, which is dead; the view after that is without a.
# Invariants: 5 (one view sequence), INV-PROMISE, INV-BIND.

processes a b c d e
delay a c 4ms
delay a d 4ms
bootstrap
----
    36 ms  a b c d e: begins view 1: a b c d e

send c 2
run 30ms
----
           nulls: a 2, b 2, d 1, e 1

crash e
until d promises
cut a > c d
until b accepts
crash a
until b begins view 2
until c begins view 2
until d begins view 2
expect view 2 at b c d: a b c d
until b begins view 3
until c begins view 3
until d begins view 3
expect view 3 at b c d: b c d
expect delivered b c d: c1 c2
----
    69 ms  e: is killed
    70 ms  a b: delivers c1..2
    72 ms  a b c d: suspects e
    72 ms  a b c d: closes view 1
    72 ms  a: takes ballot 1 of a, has the rounds a 2, b 2, c 2, d 1, e 1
    72 ms  c d: delivers c1..2
    73 ms  b: promises ballot 1 of a, has the rounds a 2, b 2, c 2, d 1, e 1
    76 ms  c d: promises ballot 1 of a, has the rounds a 2, b 2, c 2, d 1, e 1
    84 ms  a: proposes view 2: a b c d (ballot 1 of a)
    85 ms  b: accepts view 2: a b c d (ballot 1 of a)
    85 ms  a: is killed
    86 ms  c d: accepts view 2: a b c d (ballot 1 of a)
    88 ms  b: suspects a
    88 ms  b: takes ballot 2 of b, has the rounds a 2, b 2, c 2, d 1, e 1
    88 ms  b: knows the decision: view 2: a b c d, trims a 2, b 2, c 2, d 1, e 1
    89 ms  c d: knows the decision: view 2: a b c d, trims a 2, b 2, c 2, d 1, e 1
   590 ms  b c d: begins view 2: a b c d
   590 ms  b: suspects a
   590 ms  b: closes view 2
   590 ms  b: takes ballot 1 of b
   615 ms  c d: closes view 2
   615 ms  c d: promises ballot 1 of b
   622 ms  b: proposes view 3: b c d (ballot 1 of b)
   623 ms  c d: accepts view 3: b c d (ballot 1 of b)
   624 ms  b: knows the decision: view 3: b c d, no trims
   625 ms  c d: knows the decision: view 3: b c d, no trims
   626 ms  b c d: begins view 3: b c d
