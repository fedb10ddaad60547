# A member leaves in order
#
# b asks to leave. Its messages so far are delivered everywhere, and it has delivered all that lies
# below the trims when it goes. No member suspects it.
# Invariants: 4 (atomicity), 23 (no eviction without a cause).

processes a b c
bootstrap
----
    24 ms  a b c: begins view 1: a b c

send a 2
send b 3
run 1ms
leave b
until b has left
run 30ms
expect view 2 at a c: a c
expect delivered a b c: a1 b1 a2 b2 b3
----
    27 ms  a b c: delivers a1 b1 a2 b2..3
    56 ms  b: asks to leave
    56 ms  b: closes view 1
    57 ms  a c: closes view 1
    57 ms  a: takes ballot 1 of a, has the rounds a 3, b 3, c 2
    58 ms  c: promises ballot 1 of a, has the rounds a 3, b 3, c 2
    87 ms  b: promises ballot 1 of a, has the rounds a 3, b 3, c 2
    88 ms  a: proposes view 2: a c (ballot 1 of a)
    89 ms  b c: accepts view 2: a c (ballot 1 of a)
    89 ms  b c: knows the decision: view 2: a c, trims a 3, b 3, c 2
    89 ms  b: has left
    90 ms  a: suspects b
    90 ms  a: knows the decision: view 2: a c, trims a 3, b 3, c 2
    90 ms  a c: begins view 2: a c
           nulls: a 1, c 2
