# A Fifo subgroup across a change of the view
#
# In a Fifo subgroup a message is delivered on receipt. a and c have delivered messages of c that b
# has not received when it wedges, so they are beyond the trim. c lives, and sends them again in the
# next view: b delivers them there. a and c have them, and pass over them.
# Invariants: 3 (no duplicate, no gap, FIFO), 4 (atomicity).

processes a b c d
subgroup main fifo
delay c b 40ms
bootstrap
----
    17 ms  a d: begins view 1: a b c d
    75 ms  c: begins view 1: a b c d
   115 ms  b: begins view 1: a b c d

send c 1
run 100ms
----
   115 ms  c: delivers c1
   142 ms  a d: delivers c1
   178 ms  b: delivers c1

send c 2
run 4ms
expect delivered a c: c1 c2 c3
expect delivered b: c1
crash d
until a begins view 2
until b begins view 2
until c begins view 2
run 200ms
expect delivered a b c: c1 c2 c3
----
   215 ms  a c d: delivers c2..3
   219 ms  d: is killed
   222 ms  a b c: suspects d
   222 ms  a b c: closes view 1
   222 ms  a: takes ballot 1 of a, has the rounds a 0, b 0, c 3, d 0
   224 ms  b: promises ballot 1 of a, has the rounds a 0, b 0, c 1, d 0
   226 ms  c: promises ballot 1 of a, has the rounds a 0, b 0, c 3, d 0
   227 ms  a: proposes view 2: a b c (ballot 1 of a)
   228 ms  b c: accepts view 2: a b c (ballot 1 of a)
   231 ms  c: knows the decision: view 2: a b c, trims a 0, b 0, c 1, d 0
   232 ms  a: knows the decision: view 2: a b c, trims a 0, b 0, c 1, d 0
   233 ms  b: knows the decision: view 2: a b c, trims a 0, b 0, c 1, d 0
   234 ms  a: begins view 2: a b c
   235 ms  c: sends its 2 undelivered messages again
   235 ms  c: begins view 2: a b c
   277 ms  b: begins view 2: a b c
   277 ms  b: delivers c2..3
