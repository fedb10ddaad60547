//! The tests that every fabric must pass: one function for each case, generic over a [`Harness`]
//! that connects members in this process.
//!
//! [`conformance_suite!`](crate::conformance_suite) makes a `#[test]` of each. The cases in
//! `threaded` modules run members on threads of their own; a fabric that lives on one thread, like
//! a simulated one, leaves them out. A case fails by panic. Waits are bounded, generously; a bound
//! that is reached is a failure, and no case requires a speed.
mod harness;
pub mod links;
pub mod publishing;
pub mod resuming;
mod rows;
mod sleeps;
#[cfg(test)]
mod tests;
pub mod threaded;

pub use harness::{Harness, PATIENCE, view};
pub use rows::*;
pub use sleeps::*;

/// Makes one `#[test]` per case, for a [`Harness`](crate::conformance::Harness). With
/// `single_threaded` behind it, only the cases that keep all members on one thread.
#[macro_export]
macro_rules! conformance_suite {
    ($harness:ty) => {
        $crate::conformance_suite!($harness, single_threaded);
        $crate::conformance_suite!($harness, $crate::conformance::threaded, [
            data_is_seen_before_what_announces_it
            words_are_never_torn
            counters_of_many_peers_never_go_back
            a_reader_on_another_thread_sees_what_is_posted
            no_wake_up_is_lost_in_ping_pong
            many_peers_wake_one_sleeper
            a_doorbell_on_another_thread_ends_a_sleep
            sleepers_are_woken_while_others_keep_posting
        ]);
        $crate::conformance_suite!($harness, $crate::conformance::publishing::threaded, [
            waiting_publishers_and_sleeping_engines_wake_each_other
            threads_share_a_ring
            the_end_frees_a_waiting_thread
        ]);
    };
    ($harness:ty, single_threaded) => {
        $crate::conformance_suite!($harness, $crate::conformance, [
            rows_start_as_zeros
            everyone_knows_its_rank
            a_store_is_seen_by_its_owner_at_once
            a_lone_member_works
            two_members_see_each_other
            five_members_see_each_other
            sixteen_members_see_each_other
            every_word_of_a_row_arrives
            words_and_bytes_are_the_same_memory
            bytes_of_any_length_and_offset_are_read
            the_newest_value_wins
            a_post_to_one_reaches_that_one
            posts_to_one_keep_their_order
            a_quiet_post_is_seen_after_those_before_it
            my_own_rank_in_a_post_means_nothing
            a_post_to_no_peer_has_no_effect
            rows_do_not_mix
            rows_of_different_sizes_are_read_to_their_ends
            readers_see_what_the_fabric_sees
            a_reader_outlives_its_fabric
            loads_outside_a_row_panic
            unaligned_words_panic
            bytes_outside_a_row_panic
            stores_outside_my_row_panic
            members_outside_the_view_panic
            a_dead_members_row_stays_readable
            a_peer_that_is_awake_is_not_rung
            a_sleep_is_bounded
            a_ring_between_announcement_and_sleep_counts
            a_post_between_announcement_and_sleep_counts
            a_post_rings_only_its_receivers
            a_withdrawn_sleep_is_over
            a_sleep_without_announcement_is_none
            sleeps_can_follow_each_other
        ]);
        $crate::conformance_suite!($harness, $crate::conformance::publishing, [
            frames_are_read_by_everyone
            a_frame_is_seen_after_its_commit
            messages_of_every_length_survive_many_laps
            a_full_ring_has_room_again_after_delivery
            a_message_over_the_limit_is_refused
            a_frame_may_be_committed_in_part
            committing_more_than_was_claimed_panics
            a_dropped_frame_is_not_delivered
            a_panic_while_filling_gives_the_frame_up
            dropping_the_publishers_finishes_the_group
            a_shared_ring_closes_with_its_last_publisher
            shared_frames_overlap_and_keep_the_order_of_claims
            a_second_publisher_for_a_ring_panics
            publishing_ends_a_sleep
            skipped_rounds_let_others_deliver
            a_claim_gives_up_at_its_deadline
            an_async_claim_is_woken_by_room
            a_dropped_async_claim_is_forgotten
            all_waiting_tasks_are_woken
            the_end_of_the_engine_ends_waits
        ]);
    };
    ($harness:ty, $cases:path, [$($case:ident)*]) => {
        $(#[test]
        fn $case() {
            use $cases as cases;
            if <$harness as $crate::conformance::Harness>::is_here() {
                cases::$case::<$harness>();
            }
        })*
    };
}
