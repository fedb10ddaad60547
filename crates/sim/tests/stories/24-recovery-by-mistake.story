# An operator gives up members that live
#
# a and b are cut off from c, d and e, which continue as a majority. The operator errs, and makes a
# and b go on without the three: they begin a view of a new era. When the parts meet, the later era
# counts: the three end, and join the group of the two.
# Invariants: 5 (one view sequence), 15 (liveness).

processes a b c d e
bootstrap
----
    26 ms  a b c d e: begins view 1: a b c d e

cut a b | c d e
until c begins view 2
until a is blocked
until b is blocked
expect view 2 at c: c d e
----
  1027 ms  b: suspects e
  1027 ms  b: closes view 1
  1027 ms  c d: suspects a
  1027 ms  c d: closes view 1
  1028 ms  a e: closes view 1
  1028 ms  a: takes ballot 1 of a
  1029 ms  b: promises ballot 1 of a
  1057 ms  e: suspects a b
  1057 ms  a: suspects c d e
  1057 ms  a: is blocked
  1058 ms  b: suspects c d
  1058 ms  b: is blocked
  1058 ms  c d: suspects b
  1058 ms  c: takes ballot 1 of c
  1059 ms  e: promises ballot 1 of c
  1062 ms  d: promises ballot 1 of c
  1066 ms  c: proposes view 2: c d e (ballot 1 of c)
  1067 ms  d e: accepts view 2: c d e (ballot 1 of c)
  1068 ms  c: knows the decision: view 2: c d e, no trims
  1069 ms  d e: knows the decision: view 2: c d e, no trims
  1070 ms  c d e: begins view 2: c d e

give up c d e by a
until a begins view 2
until b begins view 2
expect view 2 at a b: a b
----
  1071 ms  a: gives up c d e
  1071 ms  a: takes ballot 2 of a
  1071 ms  a: is blocked no more
  1072 ms  b: gives up c d e
  1072 ms  b: promises ballot 2 of a
  1072 ms  b: is blocked no more
  1104 ms  a: proposes view 2 of era 1: a b (ballot 2 of a)
  1105 ms  b: accepts view 2 of era 1: a b (ballot 2 of a)
  1105 ms  b: knows the decision: view 2 of era 1: a b, no trims
  1106 ms  a: knows the decision: view 2 of era 1: a b, no trims
  1106 ms  a b: begins view 2 of era 1: a b

heal
until c' begins view
until d' begins view
until e' begins view
run 1500ms
----
  1385 ms  d: was left out of a view
  1386 ms  c e: was left out of a view
  1476 ms  d: exits
  1513 ms  c: exits
  1523 ms  e: exits
  1976 ms  d': starts
  1976 ms  d': waits for a member of its group
  1986 ms  d': waits for its admission
  1993 ms  a: closes view 2 of era 1
  1993 ms  a: takes ballot 1 of a
  1994 ms  b: closes view 2 of era 1
  1994 ms  b: promises ballot 1 of a
  1996 ms  a: proposes view 3 of era 1: a b d' (ballot 1 of a)
  2013 ms  b: accepts view 3 of era 1: a b d' (ballot 1 of a)
  2013 ms  b: knows the decision: view 3 of era 1: a b d', without a vote d', no trims
  2013 ms  c': starts
  2013 ms  c': waits for a member of its group
  2014 ms  a: knows the decision: view 3 of era 1: a b d', without a vote d', no trims
  2014 ms  d': is admitted to view 3
  2017 ms  a b d': begins view 3 of era 1: a b d', without a vote d'
  2019 ms  a: closes view 3 of era 1
  2019 ms  a: takes ballot 1 of a
  2020 ms  b d': closes view 3 of era 1
  2021 ms  b: promises ballot 1 of a
  2023 ms  e': starts
  2023 ms  e': waits for a member of its group
  2023 ms  c': waits for its admission
  2033 ms  e': waits for its admission
  2040 ms  d': promises ballot 1 of a
  2041 ms  a: proposes view 4 of era 1: a b d' c' (ballot 1 of a)
  2042 ms  b: accepts view 4 of era 1: a b d' c' (ballot 1 of a)
  2042 ms  b: knows the decision: view 4 of era 1: a b d' c', without a vote c', no trims
  2043 ms  a: knows the decision: view 4 of era 1: a b d' c', without a vote c', no trims
  2044 ms  d': knows the decision: view 4 of era 1: a b d' c', without a vote c', no trims
  2045 ms  c': is admitted to view 4
  2048 ms  a b d' c': begins view 4 of era 1: a b d' c', without a vote c'
  2048 ms  a: closes view 4 of era 1
  2048 ms  a: takes ballot 1 of a
  2049 ms  b d' c': closes view 4 of era 1
  2049 ms  b c': promises ballot 1 of a
  2079 ms  d': promises ballot 1 of a
  2110 ms  a: proposes view 5 of era 1: a b d' c' e' (ballot 1 of a)
  2111 ms  b d': accepts view 5 of era 1: a b d' c' e' (ballot 1 of a)
  2111 ms  b d': knows the decision: view 5 of era 1: a b d' c' e', without a vote e', no trims
  2112 ms  a: knows the decision: view 5 of era 1: a b d' c' e', without a vote e', no trims
  2113 ms  c': knows the decision: view 5 of era 1: a b d' c' e', without a vote e', no trims
  2113 ms  e': is admitted to view 5
  2116 ms  a b d' c' e': begins view 5 of era 1: a b d' c' e', without a vote e'
  3116 ms  a: closes view 5 of era 1
  3116 ms  a: takes ballot 1 of a
  3117 ms  b d' c' e': closes view 5 of era 1
  3117 ms  b e': promises ballot 1 of a
  3148 ms  d' c': promises ballot 1 of a
  3179 ms  a: proposes view 6 of era 1: a b d' c' e' (ballot 1 of a)
  3180 ms  b d': accepts view 6 of era 1: a b d' c' e' (ballot 1 of a)
  3181 ms  a: knows the decision: view 6 of era 1: a b d' c' e', no trims
  3182 ms  b d' c' e': knows the decision: view 6 of era 1: a b d' c' e', no trims
  3185 ms  a b d' c' e': begins view 6 of era 1: a b d' c' e'
