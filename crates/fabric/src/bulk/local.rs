//! Bulk groups on one machine: the root hands over the descriptor of the segment in which an object stands.
