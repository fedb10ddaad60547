# Two bootstraps that meet create one group
#
# The seeds' votes are on disk, so more than half of the seeds create the group. The link between a
# and the others is cut. a alone is no quorum, and waits. b and c vote, and create the group. When a
# hears them it looks for that group, and is admitted.
# Invariants: 18 (one incarnation), 21 (a waiting process is informed).

durable
members 2
processes a b c
cut a | b c
until b begins view 1
until c begins view 1
expect view 1 at b c: b c
run 2s
----
     0 ms  a b c: starts
     0 ms  a b c: waits for answers of more seeds
     6 ms  c: waits for the votes on the first view
     7 ms  b: waits for the votes on the first view
   302 ms  b: votes for a group of b c (round 1 of b)
   303 ms  c: votes for a group of b c (round 1 of b)
   307 ms  b c: begins view 1: b c

heal
until a is admitted
until a begins view 2
send a 1
run 50ms
----
  2526 ms  a: votes for a group of b c (round 1 of b)
  2526 ms  a: waits for its admission
  2526 ms  b: closes view 1
  2526 ms  b: takes ballot 1 of b
  2527 ms  c: closes view 1
  2527 ms  c: promises ballot 1 of b
  2558 ms  b: proposes view 2: b c a (ballot 1 of b)
  2559 ms  c: accepts view 2: b c a (ballot 1 of b)
  2559 ms  c: knows the decision: view 2: b c a, without a vote a, no trims
  2560 ms  b: knows the decision: view 2: b c a, without a vote a, no trims
  2560 ms  a: is admitted to view 2
  2563 ms  a b c: begins view 2: b c a, without a vote a
  2597 ms  a b c: delivers a1
           nulls: b 1, c 1
