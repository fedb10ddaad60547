# A suspicion that is taken back, and one that is not
#
# A silence of one second is suspected. The first pause is shorter. Then all links are cut: each
# member suspects both others, and none has a quorum that could act on it. When the links pass
# again, all suspicions are taken back, and the view that was closed ends with all members. In the
# last part c is paused for longer. a waits twice as long as before, because its last suspicion of
# c was false; then the agreement of a and b is final.
# Invariants: 16 (no false storms), 23 (no eviction without a cause).

processes a b c
bootstrap
----
    24 ms  a b c: begins view 1: a b c

pause c 600ms
run 2s
expect no view 2
expect view 1 at a b c: a b c

cut a | b c
cut b | c
until a suspects
until b suspects
until c suspects
run 500ms
expect blocked a b c
----
  3001 ms  b: suspects c
  3001 ms  b: closes view 1
  3004 ms  a: suspects b c
  3004 ms  a: closes view 1
  3004 ms  a: is blocked
  3031 ms  c: suspects a b
  3031 ms  c: closes view 1
  3031 ms  c: is blocked
  3032 ms  b: suspects a
  3032 ms  b: is blocked

heal
run 3s
expect view 2 at a b c: a b c
send a 1
run 20ms
expect delivered a b c: a1
----
  3539 ms  c: suspects no more b
  3540 ms  b: suspects no more c
  3540 ms  b: takes ballot 1 of b
  3540 ms  b: is blocked no more
  3541 ms  a: promises ballot 1 of b
  3542 ms  c: promises ballot 1 of b
  3542 ms  c: is blocked no more
  3543 ms  c: suspects no more a
  3543 ms  a: suspects no more b c
  3544 ms  b: suspects no more a
  3544 ms  b: proposes view 2: a b c (ballot 1 of b)
  3545 ms  a: accepts view 2: a b c (ballot 1 of b)
  3545 ms  a: knows the decision: view 2: a b c, no trims
  3545 ms  a: is blocked no more
  3546 ms  b: knows the decision: view 2: a b c, no trims
  3547 ms  c: knows the decision: view 2: a b c, no trims
  3549 ms  a b c: begins view 2: a b c
  6533 ms  a b c: delivers a1

pause c 6s
until a begins view 3
until b begins view 3
expect view 3 at a b: a b
run 2s
----
  8550 ms  b: suspects c
  8550 ms  b: closes view 2
  8551 ms  a: closes view 2
  8551 ms  a: takes ballot 1 of a
  8554 ms  b: promises ballot 1 of a
  8580 ms  a: suspects c
  8580 ms  a: takes ballot 2 of a, has the rounds a 1, b 0, c 0
  8585 ms  b: promises ballot 2 of a, has the rounds a 1, b 0, c 0
  8586 ms  a: proposes view 3: a b (ballot 2 of a)
  8587 ms  b: accepts view 3: a b (ballot 2 of a)
  8587 ms  b: knows the decision: view 3: a b, trims a 1, b 0, c 0
  8592 ms  a: knows the decision: view 3: a b, trims a 1, b 0, c 0
  8592 ms  a: begins view 3: a b
  8603 ms  b: begins view 3: a b
