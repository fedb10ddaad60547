# Joiners with other settings
#
# d has another window than the group, by default. A member refuses its first question with the
# settings of the group; d adopts them and is admitted. The user of e gave its window, so e is
# refused and ends.
# Invariants: 21 (a waiting process is informed), 26 (one configuration).

processes a b c
settings d other
settings e given
bootstrap
----
    24 ms  a b c: begins view 1: a b c

join d
until d asks with the settings of the group
until d begins view 2
until d begins view 3
----
    25 ms  d: starts
    25 ms  d: waits for answers of more seeds
    35 ms  d: asks with the settings of the group
    47 ms  a: closes view 1
    47 ms  a: takes ballot 1 of a
    48 ms  b c: closes view 1
    48 ms  b c: promises ballot 1 of a
    55 ms  a: proposes view 2: a b c d (ballot 1 of a)
    56 ms  b c: accepts view 2: a b c d (ballot 1 of a)
    56 ms  b c: knows the decision: view 2: a b c d, without a vote d, no trims
    57 ms  a: knows the decision: view 2: a b c d, without a vote d, no trims
    58 ms  d: is admitted to view 2
    61 ms  a b c d: begins view 2: a b c d, without a vote d
  1061 ms  a: closes view 2
  1061 ms  a: takes ballot 1 of a
  1062 ms  d: closes view 2
  1062 ms  d: promises ballot 1 of a
  1092 ms  b c: closes view 2
  1092 ms  b c: promises ballot 1 of a
  1123 ms  a: proposes view 3: a b c d (ballot 1 of a)
  1155 ms  b c: accepts view 3: a b c d (ballot 1 of a)
  1155 ms  b c: knows the decision: view 3: a b c d, no trims
  1156 ms  a d: knows the decision: view 3: a b c d, no trims
  1159 ms  b c d: begins view 3: a b c d

join e
until e is refused
expect view 3 at a d: a b c d
----
  1159 ms  e: starts
  1159 ms  e: waits for answers of more seeds
  1160 ms  a: begins view 3: a b c d
  1169 ms  e: is refused: the group has other settings (digest 29ccd00682685c1d); give all members the same subgroups, windows, message sizes and time of suspicion
