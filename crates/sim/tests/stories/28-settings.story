# Joiners with other settings
#
# d has another window than the group, by default. A member refuses its first question with the
# settings of the group; d adopts them and is admitted. The user of e gave its window, so e is
# refused and ends.
# Invariants: 21 (nobody waits in the dark), 26 (one configuration).

processes a b c
settings d other
settings e given
found

join d
until d asks with the settings of the group
until d begins view 2
until d begins view 3

join e
until e is refused
expect view 3 at a d: a b c d
