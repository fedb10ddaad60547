# Three members exchange messages; a silent sender announces nulls
#
# All members send in the subgroup. A round has one sequence number for each sender, so a message
# waits for the senders that have nothing to send in its round. These announce nulls.
# Invariants: 1 (total order), 13 (null rule).

processes a b c
bootstrap
----
    24 ms  a b c: begins view 1: a b c

send a 2
send b 1
run 20ms
expect delivered a b c: a1 b1 a2
----
    28 ms  a b c: delivers a1 b1 a2
           nulls: c 1

# Only c sends. Its messages wait for nulls of a and b, and for no more than these.
send c 3
run 20ms
expect delivered a b c: a1 b1 a2 c1 c2 c3
----
    48 ms  a b c: delivers c1..3
           nulls: a 2, b 3

# Nothing is sent, so nothing is announced.
run 50ms
