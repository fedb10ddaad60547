# A large message over a change of the view
#
# A message of 900 bytes is larger than the ring takes: its blocks go from host to host, and the
# ring carries its name once all members have it. b dies while the blocks are on their way. The
# message is not below the trims, so a sends it again in the next view.
# Invariants: 4 (atomicity), 9 (stability truth, INV-HELD).

large
processes a b c d
delay 5ms
bootstrap
----
    85 ms  a b c d: begins view 1: a b c d

send a 1 bytes 900
run 300ms
expect delivered a b c d: a1
----
   275 ms  a b d: delivers a1
   285 ms  c: delivers a1
           blocks of large messages between hosts: 45

send a 1 bytes 900
run 8ms
crash b
until a begins view 2
run 300ms
expect delivered a c d: a1 a2
----
   398 ms  b: is killed
   413 ms  a c d: suspects b
   413 ms  a c d: closes view 1
   413 ms  a: takes ballot 1 of a, has the rounds a 1, b 0, c 0, d 0
   428 ms  d: promises ballot 1 of a, has the rounds a 1, b 0, c 0, d 0
   433 ms  c: promises ballot 1 of a, has the rounds a 1, b 0, c 0, d 0
   445 ms  a: proposes view 2: a c d (ballot 1 of a)
   450 ms  c d: accepts view 2: a c d (ballot 1 of a)
   455 ms  a: knows the decision: view 2: a c d, trims a 1, b 0, c 0, d 0
   460 ms  c d: knows the decision: view 2: a c d, trims a 1, b 0, c 0, d 0
   465 ms  c d: begins view 2: a c d
   470 ms  a: sends its 1 undelivered messages again
   470 ms  a: begins view 2: a c d
   699 ms  c d: delivers a2
   709 ms  a: delivers a2
           blocks of large messages between hosts: 34
