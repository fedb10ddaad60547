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
    63 ms  b: gives its state to d
   292 ms  d: has the state of b, which contains 2 messages
   302 ms  a: closes view 1
   302 ms  a: takes ballot 1 of a, has the rounds a 2, b 1, c 1
   303 ms  b c: closes view 1
   303 ms  b c: promises ballot 1 of a, has the rounds a 2, b 1, c 1
   304 ms  a: proposes view 2: a b c d (ballot 1 of a)
   305 ms  b: accepts view 2: a b c d (ballot 1 of a)
   305 ms  b: knows the decision: view 2: a b c d, without a vote d, trims a 2, b 1, c 1
   306 ms  d: is admitted to view 2 with the state
   306 ms  a c: knows the decision: view 2: a b c d, without a vote d, trims a 2, b 1, c 1
   309 ms  a b c d: begins view 2: a b c d, without a vote d
  1309 ms  a: closes view 2
  1309 ms  a: takes ballot 1 of a
  1310 ms  d: closes view 2
  1310 ms  d: promises ballot 1 of a
  1340 ms  b c: closes view 2
  1340 ms  b c: promises ballot 1 of a
  1372 ms  a: proposes view 3: a b c d (ballot 1 of a)
  1403 ms  b c: accepts view 3: a b c d (ballot 1 of a)
  1403 ms  b c: knows the decision: view 3: a b c d, no trims
  1404 ms  a d: knows the decision: view 3: a b c d, no trims
  1407 ms  a b c d: begins view 3: a b c d

crash a
until d begins view 4
crash b
until d begins view 5
expect view 5 at c d: c d
send d 1
run 50ms
----
  1427 ms  a: is killed
  1430 ms  b c d: suspects a
  1430 ms  b c d: closes view 3
  1430 ms  b: takes ballot 1 of b
  1431 ms  d: promises ballot 1 of b
  1438 ms  c: promises ballot 1 of b
  1439 ms  b: proposes view 4: b c d (ballot 1 of b)
  1440 ms  c d: accepts view 4: b c d (ballot 1 of b)
  1441 ms  b: knows the decision: view 4: b c d, no trims
  1442 ms  c d: knows the decision: view 4: b c d, no trims
  1452 ms  c d: begins view 4: b c d
  1452 ms  b: is killed
  1455 ms  c d: suspects b
  1455 ms  c d: closes view 4
  1455 ms  c: takes ballot 1 of c
  1459 ms  d: promises ballot 1 of c
  1460 ms  c: proposes view 5: c d (ballot 1 of c)
  1461 ms  d: accepts view 5: c d (ballot 1 of c)
  1461 ms  d: knows the decision: view 5: c d, no trims
  1462 ms  c: knows the decision: view 5: c d, no trims
  1462 ms  c d: begins view 5: c d
           nulls: c 1
