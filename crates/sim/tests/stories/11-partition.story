# A partition of three hosts: the minority blocks, and rejoins
#
# a and b are more than half of the voters and continue. c hears no quorum: it blocks, delivers
# nothing, and does not end, because only a decided view without it ends a member. After the heal it
# is told of that view and ends. The process that follows it joins. The message that c sent into the
# cut is lost with c: no member delivers it.
# Invariants: 5 (one view sequence), 6 (primary component), 23 (no eviction without a cause).

processes a b c
bootstrap
----
    24 ms  a b c: begins view 1: a b c

send a 1
run 20ms
----
    27 ms  a b c: delivers a1

cut a b | c
send a 1
send c 1
until a begins view 2
until b begins view 2
until c is blocked
expect view 2 at a b: a b
expect view 1 at c: a b c
expect blocked c
send b 1
run 1s
expect undelivered c1
expect delivered a b: a1 a2 b1
expect delivered c: a1
----
  1025 ms  b: suspects c
  1025 ms  b: closes view 1
  1026 ms  a: closes view 1
  1026 ms  a: takes ballot 1 of a
  1027 ms  b: promises ballot 1 of a
  1055 ms  a: suspects c
  1055 ms  a: takes ballot 2 of a, has the rounds a 2, b 1, c 0
  1055 ms  c: suspects a b
  1055 ms  c: closes view 1
  1055 ms  c: is blocked
  1056 ms  b: promises ballot 2 of a, has the rounds a 2, b 1, c 0
  1057 ms  a: proposes view 2: a b (ballot 2 of a)
  1058 ms  b: accepts view 2: a b (ballot 2 of a)
  1058 ms  b: knows the decision: view 2: a b, trims a 2, b 1, c 0
  1058 ms  b: delivers a2
  1063 ms  a: knows the decision: view 2: a b, trims a 2, b 1, c 0
  1063 ms  a: delivers a2
  1063 ms  a b: begins view 2: a b
  1126 ms  a b: delivers b1
           nulls: a 1, b 1

heal
until c was evicted
until c' begins view
run 1s
send c' 1
run 30ms
----
  2317 ms  c: knows the decision: view 2: a b, trims a 2, b 1, c 0
  2317 ms  c: is blocked no more
  2317 ms  c: was evicted
  2513 ms  c: exits
  3013 ms  c': starts
  3013 ms  c': waits for a member of its group
  3019 ms  a: closes view 2
  3019 ms  a: takes ballot 1 of a, has the rounds a 1, b 1
  3020 ms  b: closes view 2
  3020 ms  b: promises ballot 1 of a, has the rounds a 1, b 1
  3022 ms  a: proposes view 3: a b c' (ballot 1 of a)
  3023 ms  b: accepts view 3: a b c' (ballot 1 of a)
  3023 ms  b: knows the decision: view 3: a b c', without a vote c', trims a 1, b 1
  3023 ms  c': waits for its admission
  3024 ms  a: knows the decision: view 3: a b c', without a vote c', trims a 1, b 1
  3025 ms  c': is admitted to view 3
  3028 ms  a b c': begins view 3: a b c', without a vote c'
  4028 ms  a: closes view 3
  4028 ms  a: takes ballot 1 of a
  4029 ms  c': closes view 3
  4029 ms  c': promises ballot 1 of a
  4030 ms  b: closes view 3
  4030 ms  b: promises ballot 1 of a
  4033 ms  a: proposes view 4: a b c' (ballot 1 of a)
  4033 ms  a c': delivers c'1
  4034 ms  b: accepts view 4: a b c' (ballot 1 of a)
  4034 ms  b: knows the decision: view 4: a b c', no trims
  4034 ms  b: delivers c'1
  4035 ms  c': knows the decision: view 4: a b c', no trims
  4036 ms  a: knows the decision: view 4: a b c', no trims
  4039 ms  a b c': begins view 4: a b c'
           nulls: a 1, b 1
