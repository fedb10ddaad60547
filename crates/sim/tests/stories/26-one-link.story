# One link fails: members that do not hear each other are not in one view
#
# a and c do not hear each other, and b hears both. a leads. It is a quorum with b, and proposes a
# view without c, because no two members of a view may suspect each other. c learns of the decision
# from b, and ends. The process that follows it waits, and is admitted when the link passes again.
# Invariants: 6 (primary component), 23 (no eviction without a cause).

processes a b c
bootstrap
----
    24 ms  a b c: begins view 1: a b c

send a 1
send c 1
run 100ms
----
    27 ms  a b c: delivers a1 c1
           nulls: b 1

cut a | c
until b begins view 2
run 3s
----
  1149 ms  a: suspects c
  1149 ms  a: closes view 1
  1149 ms  a: takes ballot 1 of a, has the rounds a 1, b 1, c 1
  1149 ms  c: suspects a
  1149 ms  c: closes view 1
  1150 ms  b: closes view 1
  1150 ms  b: promises ballot 1 of a, has the rounds a 1, b 1, c 1
  1151 ms  a: proposes view 2: a b (ballot 1 of a)
  1152 ms  b: accepts view 2: a b (ballot 1 of a)
  1152 ms  b: knows the decision: view 2: a b, trims a 1, b 1, c 1
  1156 ms  a c: knows the decision: view 2: a b, trims a 1, b 1, c 1
  1156 ms  a b: begins view 2: a b
  1156 ms  c: was evicted
  1181 ms  c: exits
  1681 ms  c': starts
  1681 ms  c': waits for a member of its group
  1691 ms  c': waits for its admission

heal
run 5s
----
  4207 ms  a: closes view 2
  4207 ms  a: takes ballot 1 of a
  4208 ms  b: closes view 2
  4220 ms  b: promises ballot 1 of a
  4221 ms  a: proposes view 3: a b c' (ballot 1 of a)
  4222 ms  b: accepts view 3: a b c' (ballot 1 of a)
  4222 ms  b: knows the decision: view 3: a b c', without a vote c', no trims
  4223 ms  a: knows the decision: view 3: a b c', without a vote c', no trims
  4223 ms  c': is admitted to view 3
  4226 ms  a b c': begins view 3: a b c', without a vote c'
  5226 ms  a: closes view 3
  5226 ms  a: takes ballot 1 of a
  5227 ms  c': closes view 3
  5227 ms  c': promises ballot 1 of a
  5257 ms  b: closes view 3
  5257 ms  b: promises ballot 1 of a
  5288 ms  a: proposes view 4: a b c' (ballot 1 of a)
  5320 ms  b: accepts view 4: a b c' (ballot 1 of a)
  5320 ms  b: knows the decision: view 4: a b c', no trims
  5321 ms  a c': knows the decision: view 4: a b c', no trims
  5324 ms  a b c': begins view 4: a b c'
