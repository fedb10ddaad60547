# A change of a subgroup touches only that subgroup
#
# b proposes a smaller window for the subgroup x. The next view touches x alone: its epoch ends with
# trims, and m keeps its rings. Messages of m are neither cut nor sent again.
# Invariants: 4 (atomicity), 5 (one view sequence), INV-CUT.

processes a b c
subgroup m
subgroup x window 8
bootstrap
----
    24 ms  a b c: begins view 1: a b c

send a 2 in m
send a 2 in x
run 20ms
----
    27 ms  a b c: delivers in m: a1
    27 ms  a b c: delivers in x: a3
    29 ms  a b c: delivers in m: a2
    29 ms  a b c: delivers in x: a4
           nulls: b 2, c 2

send c 3 in m
send c 3 in x
alter b x window 2
until a begins view 2
until b begins view 2
until c begins view 2
run 30ms
----
    45 ms  b: proposes a change of subgroup x
    45 ms  b: closes view 1
    46 ms  a: closes view 1
    46 ms  a: takes ballot 1 of a, has the rounds in x a 4, b 1, c 4
    47 ms  c: closes view 1
    47 ms  b: promises ballot 1 of a, has the rounds in x a 4, b 4, c 4
    48 ms  c: promises ballot 1 of a, has the rounds in x a 4, b 4, c 4
    49 ms  a: proposes view 2: a b c (ballot 1 of a)
    49 ms  a b: delivers in m: c1..3
    50 ms  c: accepts view 2: a b c (ballot 1 of a)
    50 ms  c: knows the decision: view 2: a b c, trims in x a 4, b 1, c 4
    50 ms  c: delivers in m: c1..3
    50 ms  c: delivers in x: c4..6
    51 ms  a b: knows the decision: view 2: a b c, trims in x a 4, b 1, c 4
    51 ms  a b: delivers in x: c4..6
    54 ms  a b c: begins view 2: a b c
           nulls: a 4, b 6

create a y fifo
until a begins view 3
until c begins view 3
send c 2 in y
send b 1 in m
run 30ms
----
    85 ms  a: proposes a change of subgroup y
    85 ms  a: closes view 2
    85 ms  a: takes ballot 1 of a
    86 ms  b: closes view 2
    86 ms  b: promises ballot 1 of a
   116 ms  c: closes view 2
   116 ms  c: promises ballot 1 of a
   117 ms  a: proposes view 3: a b c (ballot 1 of a)
   118 ms  c: accepts view 3: a b c (ballot 1 of a)
   118 ms  c: knows the decision: view 3: a b c, no trims
   119 ms  a: knows the decision: view 3: a b c, no trims
   120 ms  b: knows the decision: view 3: a b c, no trims
   123 ms  a b c: begins view 3: a b c
   123 ms  a b c: delivers in y: c7..8
   126 ms  a b c: delivers in m: b1
           nulls: a 1

drop a x
until a begins view 4
run 30ms
----
   153 ms  a: proposes a change of subgroup x
   153 ms  a: closes view 3
   153 ms  a: takes ballot 1 of a
   154 ms  b c: closes view 3
   154 ms  c: promises ballot 1 of a
   155 ms  b: promises ballot 1 of a
   186 ms  a: proposes view 4: a b c (ballot 1 of a)
   187 ms  c: accepts view 4: a b c (ballot 1 of a)
   187 ms  c: knows the decision: view 4: a b c, no trims
   188 ms  a: knows the decision: view 4: a b c, no trims
   189 ms  b: knows the decision: view 4: a b c, no trims
   192 ms  a b c: begins view 4: a b c
