# A joiner dies while it takes over the state
#
# d has asked for the state, and is killed before all of it has arrived. It was in no view and had
# no vote, so no view has to end, and no message waits for it. The next process in its place takes
# the state over from the beginning.
# Invariants: 15 (liveness), 22 (state at the first view).

state
processes a b c
bootstrap
----
    24 ms  a b c: begins view 1: a b c

send a 3
run 20ms
----
    27 ms  a b c: delivers a1..3
           nulls: b 2, c 2

join d
until d follows
until b gives its state
run 2ms
crash d
send b 2
run 2s
expect view 1 at a b c: a b c
expect delivered a b c: a1 a2 a3 b1 b2
----
    45 ms  d: starts
    45 ms  d: waits for answers of more seeds
    55 ms  d: asks for the state
    61 ms  d: follows view 1
    63 ms  b: gives its state to d
    66 ms  d: is killed
    86 ms  a b c: delivers b1..2
           nulls: a 1, c 1

restart d
until d' has the state
until d' begins view 2
----
  2066 ms  d': starts
  2066 ms  d': waits for answers of more seeds
  2076 ms  d': asks for the state
  2082 ms  d': follows view 1
  2085 ms  b: gives its state to d'
  2096 ms  c: gives its state to d'
  2129 ms  d': has the state of c, which contains 5 messages
  2136 ms  a: closes view 1
  2136 ms  a: takes ballot 1 of a, has the rounds a 4, b 4, c 3
  2137 ms  b c: closes view 1
  2137 ms  b c: promises ballot 1 of a, has the rounds a 4, b 4, c 3
  2149 ms  a: proposes view 2: a b c d' (ballot 1 of a)
  2150 ms  b: accepts view 2: a b c d' (ballot 1 of a)
  2150 ms  b: knows the decision: view 2: a b c d', without a vote d', trims a 4, b 4, c 3
  2151 ms  a c: knows the decision: view 2: a b c d', without a vote d', trims a 4, b 4, c 3
  2152 ms  d': is admitted to view 2 with the state
  2155 ms  a b c d': begins view 2: a b c d', without a vote d'
