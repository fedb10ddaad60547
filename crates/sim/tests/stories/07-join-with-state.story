# A process joins with the state, under load
#
# d follows the view from outside and asks for the state. A member sends it, and d applies what it
# reads behind the state. It begins its first view with exactly the messages that the members have
# delivered by then. The checker compares the digests.
# Invariants: 22 (state at the first view).

state
processes a b c
bootstrap
----
    24 ms  a b c: begins view 1: a b c

send a 3
send b 3
run 30ms
----
    28 ms  a b c: delivers a1 b1 a2 b2 a3 b3
           nulls: c 2

join d
until d asks for the state
send c 2
until d has the state
send a 2
send c 2
until d begins view 2
run 30ms
send d 1
run 100ms
expect delivered a: a1 b1 a2 b2 a3 b3 c1 c2 a4 c3 a5 c4 d1
----
    55 ms  d: starts
    55 ms  d: waits for answers of more seeds
    65 ms  d: asks for the state
    73 ms  d: follows view 1
    74 ms  a b c: delivers c1..2
    77 ms  b: gives its state to d
   348 ms  d: has the state of b, which contains 8 messages
   351 ms  a: closes view 1
   351 ms  a: takes ballot 1 of a, has the rounds a 6, b 6, c 6
   351 ms  a c: delivers a4
   352 ms  b: closes view 1
   352 ms  b: delivers a4 c3 a5 c4
   352 ms  b: promises ballot 1 of a, has the rounds a 6, b 6, c 6
   353 ms  c: closes view 1
   353 ms  c: promises ballot 1 of a, has the rounds a 6, b 6, c 6
   353 ms  c: delivers c3 a5 c4
   354 ms  a: proposes view 2: a b c d (ballot 1 of a)
   355 ms  c: accepts view 2: a b c d (ballot 1 of a)
   355 ms  c: knows the decision: view 2: a b c d, without a vote d, trims a 6, b 6, c 6
   356 ms  d: is admitted to view 2 with the state
   356 ms  a b: knows the decision: view 2: a b c d, without a vote d, trims a 6, b 6, c 6
   356 ms  a: delivers c3 a5 c4
   359 ms  a b c d: begins view 2: a b c d, without a vote d
   425 ms  a b c d: delivers d1
           nulls: a 2, b 4, c 1
