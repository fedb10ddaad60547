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
  1059 ms  d: promises ballot 1 of c
  1061 ms  e: promises ballot 1 of c
  1062 ms  c: proposes view 2: c d e (ballot 1 of c)
  1063 ms  e: accepts view 2: c d e (ballot 1 of c)
  1066 ms  d: accepts view 2: c d e (ballot 1 of c)
  1066 ms  d: knows the decision: view 2: c d e, no trims
  1067 ms  e: knows the decision: view 2: c d e, no trims
  1068 ms  c: knows the decision: view 2: c d e, no trims
  1068 ms  c: begins view 2: c d e

give up c d e by a
until a begins view 2
until b begins view 2
expect view 2 at a b: a b
----
  1068 ms  a: gives up c d e
  1068 ms  a: takes ballot 2 of a
  1068 ms  a: is blocked no more
  1069 ms  d e: begins view 2: c d e
  1069 ms  b: gives up c d e
  1069 ms  b: promises ballot 2 of a
  1069 ms  b: is blocked no more
  1070 ms  a: proposes view 2 of era 1: a b (ballot 2 of a)
  1071 ms  b: accepts view 2 of era 1: a b (ballot 2 of a)
  1071 ms  b: knows the decision: view 2 of era 1: a b, no trims
  1072 ms  a: knows the decision: view 2 of era 1: a b, no trims
  1072 ms  a b: begins view 2 of era 1: a b

heal
until c' begins view
until d' begins view
until e' begins view
run 1500ms
----
  1311 ms  e: was left out of a view
  1312 ms  c: was left out of a view
  1312 ms  d: suspects e
  1312 ms  d: closes view 2
  1314 ms  d: was left out of a view
  1328 ms  e: exits
  1412 ms  d: exits
  1454 ms  c: exits
  1828 ms  e': starts
  1828 ms  e': waits for a member of its group
  1834 ms  a: closes view 2 of era 1
  1834 ms  a: takes ballot 1 of a
  1835 ms  b: closes view 2 of era 1
  1835 ms  b: promises ballot 1 of a
  1837 ms  a: proposes view 3 of era 1: a b e' (ballot 1 of a)
  1838 ms  e': waits for its admission
  1842 ms  b: accepts view 3 of era 1: a b e' (ballot 1 of a)
  1842 ms  b: knows the decision: view 3 of era 1: a b e', without a vote e', no trims
  1843 ms  a: knows the decision: view 3 of era 1: a b e', without a vote e', no trims
  1843 ms  e': is admitted to view 3
  1846 ms  a b e': begins view 3 of era 1: a b e', without a vote e'
  1912 ms  d': starts
  1912 ms  d': waits for a member of its group
  1918 ms  a: closes view 3 of era 1
  1918 ms  a: takes ballot 1 of a
  1919 ms  b e': closes view 3 of era 1
  1919 ms  e': promises ballot 1 of a
  1921 ms  b: promises ballot 1 of a
  1922 ms  d': waits for its admission
  1922 ms  a: proposes view 4 of era 1: a b e' d' (ballot 1 of a)
  1923 ms  b: accepts view 4 of era 1: a b e' d' (ballot 1 of a)
  1923 ms  b: knows the decision: view 4 of era 1: a b e' d', without a vote d', no trims
  1924 ms  a: knows the decision: view 4 of era 1: a b e' d', without a vote d', no trims
  1924 ms  d': is admitted to view 4
  1925 ms  e': knows the decision: view 4 of era 1: a b e' d', without a vote d', no trims
  1927 ms  a b e' d': begins view 4 of era 1: a b e' d', without a vote d'
  1954 ms  c': starts
  1954 ms  c': waits for a member of its group
  1972 ms  a: closes view 4 of era 1
  1972 ms  a: takes ballot 1 of a
  1973 ms  b e' d': closes view 4 of era 1
  1974 ms  e': promises ballot 1 of a
  1975 ms  b: promises ballot 1 of a
  1976 ms  c': waits for its admission
  1976 ms  d': promises ballot 1 of a
  1977 ms  a: proposes view 5 of era 1: a b e' d' c' (ballot 1 of a)
  1978 ms  b: accepts view 5 of era 1: a b e' d' c' (ballot 1 of a)
  1978 ms  b: knows the decision: view 5 of era 1: a b e' d' c', without a vote c', no trims
  1979 ms  e': knows the decision: view 5 of era 1: a b e' d' c', without a vote c', no trims
  1979 ms  c': is admitted to view 5
  1980 ms  a d': knows the decision: view 5 of era 1: a b e' d' c', without a vote c', no trims
  1982 ms  a b e' d' c': begins view 5 of era 1: a b e' d' c', without a vote c'
  2982 ms  a: closes view 5 of era 1
  2982 ms  a: takes ballot 1 of a
  2983 ms  b e' d' c': closes view 5 of era 1
  2983 ms  b e' d': promises ballot 1 of a
  3006 ms  c': promises ballot 1 of a
  3007 ms  a: proposes view 6 of era 1: a b e' d' c' (ballot 1 of a)
  3008 ms  e' d': accepts view 6 of era 1: a b e' d' c' (ballot 1 of a)
  3009 ms  a: knows the decision: view 6 of era 1: a b e' d' c', no trims
  3010 ms  b e' d' c': knows the decision: view 6 of era 1: a b e' d' c', no trims
  3013 ms  a b e' d' c': begins view 6 of era 1: a b e' d' c'
