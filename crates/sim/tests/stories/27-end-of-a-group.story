# All members leave, one after the other, and an observer stays until the end
#
# Each member leaves in order; the last one has no other member to wait for. The observer follows
# the views and has received all messages. When the last connection has ended, and no view follows,
# it observes no more.
# Invariants: 1 (total order), 4 (atomicity).

processes a b
bootstrap
----
    14 ms  a b: begins view 1: a b

observe o
until o follows
run 100ms
send a 2
send b 1
run 100ms
expect delivered o: a1 b1 a2
----
    15 ms  o: starts as an observer
    29 ms  o: follows view 1
   139 ms  a b: delivers a1 b1 a2
   140 ms  o: is told a1 b1 a2

leave b
until b has left
run 100ms
leave a
until o observes no more
run 100ms
----
   232 ms  b: asks to leave
   232 ms  b: closes view 1
   233 ms  a: closes view 1
   233 ms  a: takes ballot 1 of a, has the rounds a 2, b 1
   264 ms  b: promises ballot 1 of a, has the rounds a 2, b 1
   265 ms  a: proposes view 2: a (ballot 1 of a)
   266 ms  b: accepts view 2: a (ballot 1 of a)
   266 ms  b: knows the decision: view 2: a, trims a 2, b 1
   266 ms  b: has left
   267 ms  a: suspects b
   267 ms  a: knows the decision: view 2: a, trims a 2, b 1
   267 ms  a: begins view 2: a
   271 ms  o: follows view 2
   366 ms  a: has left as the last member
   393 ms  b: exits
   494 ms  a: exits
  3499 ms  o: observes no more: the connection to a member is lost
  3501 ms  o: exits
