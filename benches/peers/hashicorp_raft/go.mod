module spindle.peers/hashicorp_raft

go 1.25

require github.com/hashicorp/raft v1.7.3
