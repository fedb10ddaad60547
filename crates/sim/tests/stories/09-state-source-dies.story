# The sender of the state dies during the transfer
#
# The body of a state follows its head after up to 300 ms. b, its sender, is killed in between. The
# members continue without b; d follows them to the next view, and gets the state of another member.
# Invariants: 15 (liveness), 22 (state at the first view).

state
processes a b c
bootstrap
----
    24 ms  a b c: begins view 1: a b c

send a 3
send b 2
run 30ms

join d
until b gives its state
run 2ms
crash b
until d has the state
until d begins view
run 100ms
----
    55 ms  d: starts
    55 ms  d: waits for answers of more seeds
    56 ms  a b c: delivers a1 b1 a2 b2 a3
    65 ms  d: asks for the state
    71 ms  d: follows view 1
    77 ms  b: gives its state to d
    79 ms  b: is killed
    82 ms  a c: suspects b
    82 ms  a c: closes view 1
    82 ms  a: takes ballot 1 of a, has the rounds a 3, b 2, c 2
    86 ms  c: promises ballot 1 of a, has the rounds a 3, b 2, c 2
    94 ms  a: proposes view 2: a c (ballot 1 of a)
    95 ms  c: accepts view 2: a c (ballot 1 of a)
    95 ms  c: knows the decision: view 2: a c, trims a 3, b 2, c 2
    96 ms  a: knows the decision: view 2: a c, trims a 3, b 2, c 2
    96 ms  a c: begins view 2: a c
   101 ms  d: follows view 2
   104 ms  a: gives its state to d
   401 ms  d: has the state of a, which contains 5 messages
   407 ms  a: closes view 2
   407 ms  a: takes ballot 1 of a
   408 ms  c: closes view 2
   410 ms  c: promises ballot 1 of a
   411 ms  a: proposes view 3: a c d (ballot 1 of a)
   412 ms  c: accepts view 3: a c d (ballot 1 of a)
   412 ms  c: knows the decision: view 3: a c d, without a vote d, no trims
   413 ms  d: is admitted to view 3 with the state
   413 ms  a: knows the decision: view 3: a c d, without a vote d, no trims
   416 ms  a c d: begins view 3: a c d, without a vote d
           nulls: c 2
