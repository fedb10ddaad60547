# One of two members fails: the survivor blocks until an operator decides
#
# One voter of two is no majority. b can't know whether a has ended or is out of reach, so it blocks
# and delivers nothing. It takes its first suspicion back, because it notices a heartbeat that a had
# posted before it died; the silence behind that leads to the second one. An operator who knows that
# a is lost declares it lost. b continues alone, in a view of a new era, and delivers its message.
# Invariants: 6 (primary component), 21 (a waiting process is informed).

processes a b
bootstrap
----
    14 ms  a b: begins view 1: a b

send b 1
run 20ms
----
    17 ms  a b: delivers b1
           nulls: a 1

crash a
send b 1
until b is blocked
run 10s
expect blocked b
expect view 1 at b: a b
expect undelivered b2
----
    35 ms  a: is killed
    38 ms  b: suspects a
    38 ms  b: closes view 1
    38 ms  b: is blocked
   295 ms  b: suspects no more a
   295 ms  b: is blocked no more
  2038 ms  b: takes ballot 1 of b, has the rounds a 1, b 2
  2295 ms  b: suspects a
  2295 ms  b: is blocked

give up a by b
until b begins view
run 50ms
expect view 2 at b: b
expect delivered b: b1 b2
----
 10038 ms  b: gives up a
 10038 ms  b: takes ballot 2 of b, has the rounds a 1, b 2
 10038 ms  b: proposes view 2 of era 1: b (ballot 2 of b)
 10038 ms  b: knows the decision: view 2 of era 1: b, trims a 1, b 2
 10038 ms  b: is blocked no more
 10038 ms  b: delivers b2
 10038 ms  b: begins view 2 of era 1: b
