# A learner becomes a member, and then a voter
#
# d has no state and no vote. It takes the state of a member, and is admitted with it in a view in
# which it does not vote. In the next one it does. Then a dies, and b. In view 4 b, c and d vote: c
# and d are more than half of the three only because d has a vote.
# Invariants: 6 (primary component), 22 (state at the first view).

state
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
until d begins view 3
run 20ms
expect view 3 at a b c d: a b c d
----
    45 ms  d: starts
    45 ms  d: waits for answers of more seeds
    55 ms  d: asks for the state
    61 ms  d: follows view 1
    75 ms  c: gives its state to d
   296 ms  d: has the state of c, which contains 2 messages
   337 ms  a: closes view 1
   337 ms  a: takes ballot 1 of a, has the rounds a 2, b 1, c 1
   338 ms  b c: closes view 1
   338 ms  b c: promises ballot 1 of a, has the rounds a 2, b 1, c 1
   339 ms  a: proposes view 2: a b c d (ballot 1 of a)
   340 ms  b c: accepts view 2: a b c d (ballot 1 of a)
   340 ms  b c: knows the decision: view 2: a b c d, without a vote d, trims a 2, b 1, c 1
   341 ms  d: is admitted to view 2 with the state
   341 ms  a: knows the decision: view 2: a b c d, without a vote d, trims a 2, b 1, c 1
   344 ms  a b c d: begins view 2: a b c d, without a vote d
  1344 ms  a: closes view 2
  1344 ms  a: takes ballot 1 of a
  1345 ms  d: closes view 2
  1345 ms  d: promises ballot 1 of a
  1375 ms  b c: closes view 2
  1375 ms  b c: promises ballot 1 of a
  1376 ms  a: proposes view 3: a b c d (ballot 1 of a)
  1377 ms  b c: accepts view 3: a b c d (ballot 1 of a)
  1377 ms  b c: knows the decision: view 3: a b c d, no trims
  1378 ms  a: knows the decision: view 3: a b c d, no trims
  1379 ms  d: knows the decision: view 3: a b c d, no trims
  1381 ms  a b c d: begins view 3: a b c d

crash a
until d begins view 4
crash b
until d begins view 5
expect view 5 at c d: c d
send d 1
run 50ms
----
  1402 ms  a: is killed
  1405 ms  b c d: suspects a
  1405 ms  b c d: closes view 3
  1405 ms  b: takes ballot 1 of b
  1406 ms  c d: promises ballot 1 of b
  1413 ms  b: proposes view 4: b c d (ballot 1 of b)
  1419 ms  d: accepts view 4: b c d (ballot 1 of b)
  1444 ms  c: accepts view 4: b c d (ballot 1 of b)
  1444 ms  c: knows the decision: view 4: b c d, no trims
  1445 ms  b d: knows the decision: view 4: b c d, no trims
  1455 ms  b c d: begins view 4: b c d
  1455 ms  b: is killed
  1458 ms  c d: suspects b
  1458 ms  c d: closes view 4
  1458 ms  c: takes ballot 1 of c
  1462 ms  d: promises ballot 1 of c
  1463 ms  c: proposes view 5: c d (ballot 1 of c)
  1464 ms  d: accepts view 5: c d (ballot 1 of c)
  1464 ms  d: knows the decision: view 5: c d, no trims
  1465 ms  c: knows the decision: view 5: c d, no trims
  1465 ms  c d: begins view 5: c d
           nulls: c 1
