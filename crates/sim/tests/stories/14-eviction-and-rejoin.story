# A member is evicted by request, and rejoins as another process
#
# An operator asks a to evict c, which lives and is heard. A request is no suspicion: c promises
# like all others, and ends by the decided view without it. The process that follows it has the
# same id and another nonce; only a view that admits that nonce lets it in.
# Invariants: 5 (one view sequence), 23 (no eviction without a cause).

processes a b c
bootstrap
----
    24 ms  a b c: begins view 1: a b c

send c 2
run 20ms
----
    29 ms  a b c: delivers c1..2
           nulls: a 2, b 2

evict c by a
until a begins view 2
until b begins view 2
expect view 2 at a b: a b
until c' begins view 3
send c' 1
run 50ms
----
    45 ms  a: closes view 1
    45 ms  a: takes ballot 1 of a, has the rounds a 2, b 2, c 2
    46 ms  b c: closes view 1
    46 ms  b c: promises ballot 1 of a, has the rounds a 2, b 2, c 2
    55 ms  a: proposes view 2: a b (ballot 1 of a)
    56 ms  b c: accepts view 2: a b (ballot 1 of a)
    56 ms  b c: knows the decision: view 2: a b, trims a 2, b 2, c 2
    56 ms  c: was evicted
    57 ms  a: suspects c
    57 ms  a: knows the decision: view 2: a b, trims a 2, b 2, c 2
    57 ms  a b: begins view 2: a b
   105 ms  c: exits
   605 ms  c': starts
   605 ms  c': waits for a member of its group
   611 ms  a: closes view 2
   611 ms  a: takes ballot 1 of a
   612 ms  b: closes view 2
   614 ms  b: promises ballot 1 of a
   615 ms  c': waits for its admission
   615 ms  a: proposes view 3: a b c' (ballot 1 of a)
   616 ms  b: accepts view 3: a b c' (ballot 1 of a)
   616 ms  b: knows the decision: view 3: a b c', without a vote c', no trims
   617 ms  a: knows the decision: view 3: a b c', without a vote c', no trims
   617 ms  c': is admitted to view 3
   620 ms  a b c': begins view 3: a b c', without a vote c'
   653 ms  a b c': delivers c'1
           nulls: a 1, b 1
