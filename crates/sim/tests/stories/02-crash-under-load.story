# A crash under load: the ragged trim
#
# a is cut off from c and crashes after it has sent two messages: b has them, c does not. No member
# has delivered them, because c has not acknowledged them. The trim of a is the smallest cut of the
# members that continue, so all of them deliver the messages below it, and none the others.
# Invariants: 4 (atomicity), 8 (uniformity), INV-TRIM.

processes a b c
bootstrap
----
    24 ms  a b c: begins view 1: a b c

send a 1
send b 2
send c 1
run 20ms
expect delivered b c: a1 b1 c1 b2
----
    28 ms  a b c: delivers a1 b1 c1 b2
           nulls: a 1

cut a > c
send a 2
run 5ms
crash a
until b begins view 2
until c begins view 2
expect view 2 at b c: b c
expect undelivered a2
expect undelivered a3
----
    50 ms  a: is killed
    53 ms  b: suspects a
    53 ms  b: closes view 1
    53 ms  b: takes ballot 1 of b, has the rounds a 4, b 3, c 1
    54 ms  c: closes view 1
    55 ms  c: promises ballot 1 of b, has the rounds a 2, b 3, c 1
    56 ms  b: proposes view 2: b c (ballot 1 of b)
    57 ms  c: accepts view 2: b c (ballot 1 of b)
    57 ms  c: knows the decision: view 2: b c, trims a 2, b 3, c 1
    58 ms  b: knows the decision: view 2: b c, trims a 2, b 3, c 1
    58 ms  b c: begins view 2: b c
           nulls: b 1

# The group works on.
send b 1
send c 1
run 60ms
expect delivered b c: a1 b1 c1 b2 b3 c2
----
    90 ms  b c: delivers b3 c2
