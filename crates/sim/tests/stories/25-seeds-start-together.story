# Seeds that start together create one group
#
# Three seeds without disks start at once, and a fourth process. All seeds have to vote. Each seed
# may lead an attempt; the attempts are staggered, so one of them gets all votes. A process that is
# no seed has no vote. It is in the first view if it acknowledged the group in time.
# Invariants: 18 (one incarnation), 21 (a waiting process is informed).

members 3
processes a b c d
until a begins view 1
until b begins view 1
until c begins view 1
until d begins view
send d 1
run 100ms
----
     0 ms  a b c d: starts
     0 ms  a b c d: waits for answers of more seeds
     6 ms  a b: waits for the votes on the first view
     7 ms  c: waits for the votes on the first view
    10 ms  d: waits for 2 more processes
    26 ms  a b c d: begins view 1: a b c d
    32 ms  a b c d: delivers d1
           nulls: a 1, b 1, c 1
