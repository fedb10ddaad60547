# Shards: one is unavailable below its least, and a joiner fills it
#
# Four members share two shards of at least two. When d dies its shard has one member left and is
# unavailable: b, which stays in it, may not send there, and its message waits. A joiner is placed
# in the shard that has too few, and the message that waited is delivered.
# Invariants: 3 (no duplicate, no gap, FIFO), 7 (validity).

processes a b c d
subgroup all
subgroup s shard 2 3
subgroup t shard 2 3
bootstrap
----
    26 ms  a b c d: begins view 1: a b c d; shard s: a c; shard t: b d

send a 1 in s
send d 1 in t
run 20ms
----
    28 ms  a c: delivers in s: a1
    29 ms  b d: delivers in t: d1
           nulls: b 1

crash d
until a begins view 2
until c begins view 2
send b 1 in t
run 30ms
expect undelivered b1
----
    47 ms  d: is killed
    50 ms  a b c: suspects d
    50 ms  a b c: closes view 1
    50 ms  a: takes ballot 1 of a
    51 ms  c: promises ballot 1 of a
    52 ms  b: promises ballot 1 of a, has the rounds in t b 1, d 1
    53 ms  a: proposes view 2: a b c (ballot 1 of a)
    54 ms  b c: accepts view 2: a b c (ballot 1 of a)
    57 ms  a: knows the decision: view 2: a b c; shard s: a c; shard t: b (unavailable), trims in t b 1, d 1
    58 ms  b c: knows the decision: view 2: a b c; shard s: a c; shard t: b (unavailable), trims in t b 1, d 1
    60 ms  a b c: begins view 2: a b c; shard s: a c; shard t: b (unavailable)

join e
until e begins view 3
until b begins view 3
run 100ms
expect delivered b: d1 b1
expect delivered e: b1
----
    91 ms  e: starts
    91 ms  e: waits for answers of more seeds
    97 ms  a: closes view 2
    97 ms  a: takes ballot 1 of a
    98 ms  b c: closes view 2
   100 ms  b c: promises ballot 1 of a
   101 ms  e: waits for its admission
   123 ms  a: proposes view 3: a b c e (ballot 1 of a)
   124 ms  c: accepts view 3: a b c e (ballot 1 of a)
   124 ms  c: knows the decision: view 3: a b c e, without a vote e; shard s: a c; shard t: b e, no trims
   125 ms  a b: knows the decision: view 3: a b c e, without a vote e; shard s: a c; shard t: b e, no trims
   125 ms  e: is admitted to view 3
   128 ms  a b c e: begins view 3: a b c e, without a vote e; shard s: a c; shard t: b e
   129 ms  e: delivers in t: b1
   160 ms  b: delivers in t: b1
