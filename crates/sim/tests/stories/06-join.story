# A process joins, without state
#
# d asks a seed, and the leader proposes a view with it. d runs on another host than the member that
# admits it, so no member could prove its death: it has no vote in its first view. When it has
# begun that view, the next one makes it a voter. d delivers the messages of its views, and none
# before.
# Invariants: 5 (one view sequence), 21 (a waiting process is informed).

processes a b c
bootstrap
----
    24 ms  a b c: begins view 1: a b c

send a 2
run 20ms
----
    27 ms  a b c: delivers a1..2
           nulls: b 1, c 1

join d
until d begins view 2
until a begins view 3
until d begins view 3
expect view 3 at a d: a b c d
----
    45 ms  d: starts
    45 ms  d: waits for answers of more seeds
    51 ms  a: closes view 1
    51 ms  a: takes ballot 1 of a, has the rounds a 2, b 1, c 1
    52 ms  b c: closes view 1
    54 ms  b c: promises ballot 1 of a, has the rounds a 2, b 1, c 1
    55 ms  d: waits for its admission
    55 ms  a: proposes view 2: a b c d (ballot 1 of a)
    56 ms  b c: accepts view 2: a b c d (ballot 1 of a)
    56 ms  b c: knows the decision: view 2: a b c d, without a vote d, trims a 2, b 1, c 1
    57 ms  a: knows the decision: view 2: a b c d, without a vote d, trims a 2, b 1, c 1
    57 ms  d: is admitted to view 2
    60 ms  a b c d: begins view 2: a b c d, without a vote d
  1060 ms  a: closes view 2
  1060 ms  a: takes ballot 1 of a
  1061 ms  d: closes view 2
  1061 ms  d: promises ballot 1 of a
  1091 ms  b c: closes view 2
  1091 ms  b c: promises ballot 1 of a
  1122 ms  a: proposes view 3: a b c d (ballot 1 of a)
  1154 ms  b c: accepts view 3: a b c d (ballot 1 of a)
  1154 ms  b c: knows the decision: view 3: a b c d, no trims
  1155 ms  a d: knows the decision: view 3: a b c d, no trims
  1158 ms  a b c d: begins view 3: a b c d

send d 2
send a 1
run 100ms
expect delivered a b c: a1 a2 a3 d1 d2
expect delivered d: a3 d1 d2
----
  1190 ms  a b c d: delivers a3 d1..2
           nulls: a 1, b 2, c 2
