//! Assignability: each refusal names the member and the rule.
use spindle_xcdr::*;

fn reason<R: DdsType, W: DdsType>() -> String {
    with::<R, W>(TypeConsistency::default())
}

fn with<R: DdsType, W: DdsType>(consistency: TypeConsistency) -> String {
    let result = check_assignable(&R::description(), &W::description(), consistency);
    result.map_or_else(|error| error.to_string(), |()| "assignable".to_owned())
}

/// Defines types in modules, so that both sides have the same names.
macro_rules! sides {
    ($reader:item $writer:item) => {
        #[allow(dead_code)]
        mod reader {
            use spindle_xcdr::*;
            #[derive(Clone, PartialEq, DdsType)]
            $reader
        }
        #[allow(dead_code)]
        mod writer {
            use spindle_xcdr::*;
            #[derive(Clone, PartialEq, DdsType)]
            $writer
        }
    };
}

#[test]
fn a_type_is_assignable_from_itself() {
    sides! {
        #[dds(final)] pub(super) struct T { a: Vec<String>, b: [u8; 3] }
        #[dds(final)] pub(super) struct T { a: Vec<String>, b: [u8; 3] }
    }
    assert_eq!(reason::<reader::T, writer::T>(), "assignable");
}

#[test]
fn a_member_of_another_type_is_named() {
    sides! {
        #[dds(final)] pub(super) struct T { a: i32, b: Vec<i16> }
        #[dds(final)] pub(super) struct T { a: i32, b: Vec<u16> }
    }
    assert_eq!(
        reason::<reader::T, writer::T>(),
        "the types don't match at member b[]: the reader has int16, the writer uint16; use one type"
    );
}

#[test]
fn appendable_types_may_have_more_members_at_the_end() {
    sides! {
        #[dds(appendable)] pub(super) struct T { a: i32 }
        #[dds(appendable)] pub(super) struct T { a: i32, b: String }
    }
    assert_eq!(reason::<reader::T, writer::T>(), "assignable");
    assert_eq!(reason::<writer::T, reader::T>(), "assignable");
    let narrow = TypeConsistency { prevent_type_widening: true, ..TypeConsistency::default() };
    assert_eq!(with::<reader::T, writer::T>(narrow), "assignable");
    assert_eq!(
        with::<writer::T, reader::T>(narrow),
        "the types don't match at member b: only the reader has the member, and its policy prevents type widening; use \
         the writer's type"
    );
}

#[test]
fn final_types_may_not() {
    sides! {
        #[dds(final)] pub(super) struct T { a: i32 }
        #[dds(final)] pub(super) struct T { a: i32, b: String }
    }
    assert_eq!(
        reason::<reader::T, writer::T>(),
        "the types don't match at member b: the type is final, and only the writer has the member; declare the type \
         appendable or mutable"
    );
}

#[test]
fn extensibilities_differ() {
    sides! {
        #[dds(final)] pub(super) struct T { a: i32 }
        #[dds(appendable)] pub(super) struct T { a: i32 }
    }
    assert_eq!(
        reason::<reader::T, writer::T>(),
        "the types don't match: the reader's type T is final, the writer's is appendable; declare both alike"
    );
}

#[test]
fn mutable_types_are_compared_by_identifier() {
    sides! {
        #[dds(mutable)] pub(super) struct T { #[dds(id = 2)] b: u8, #[dds(id = 1)] a: i32 }
        #[dds(mutable)] pub(super) struct T { #[dds(id = 1)] a: i32, #[dds(id = 7)] c: String }
    }
    assert_eq!(reason::<reader::T, writer::T>(), "assignable");
    mod other {
        use spindle_xcdr::*;
        #[derive(DdsType)]
        #[dds(mutable)]
        pub(super) struct T {
            #[dds(id = 1)]
            _x: i32,
        }
        #[derive(DdsType)]
        #[dds(mutable)]
        pub(super) struct U {
            #[dds(id = 9)]
            _u: i32,
        }
    }
    assert_eq!(
        reason::<reader::T, other::T>(),
        "the types don't match at member a: identifier 1 is `a` at the reader and `_x` at the writer; rename one of them"
    );
    assert_eq!(
        reason::<reader::T, other::U>(),
        "the types don't match: no member of the types has the same identifier; the types are unrelated"
    );
}

#[test]
fn keys_and_their_bounds_must_be_the_same() {
    sides! {
        #[dds(final)] pub(super) struct T { #[dds(key, bound = 4)] a: String, b: u8 }
        #[dds(final)] pub(super) struct T { #[dds(key, bound = 8)] a: String, #[dds(key)] b: u8 }
    }
    assert_eq!(
        reason::<reader::T, writer::T>(),
        "the types don't match at member a: the reader's bound is 4, the writer's is 8 (0: none); raise the reader's bound"
    );
    assert_eq!(
        reason::<writer::T, reader::T>(),
        "the types don't match at member b: the member is in the key of the reader only; both types must have the same key"
    );
}

#[test]
fn bounds_count_only_if_the_policy_says_so() {
    sides! {
        #[dds(final)] pub(super) struct T { #[dds(bound = 4, element_bound = 2)] a: Vec<String> }
        #[dds(final)] pub(super) struct T { #[dds(bound = 4, element_bound = 3)] a: Vec<String> }
    }
    assert_eq!(reason::<reader::T, writer::T>(), "assignable");
    let strict = TypeConsistency { ignore_string_bounds: false, ..TypeConsistency::default() };
    assert_eq!(
        with::<reader::T, writer::T>(strict),
        "the types don't match at member a[]: the reader's bound is 2, the writer's is 3 (0: none); raise the reader's bound"
    );
}

#[test]
fn enumerations_and_unions_are_compared_by_value() {
    sides! {
        #[derive(Copy)] pub(super) enum E { A = 1, B = 2 }
        #[derive(Copy)] pub(super) enum E { A = 1, C = 2 }
    }
    assert_eq!(
        reason::<reader::E, writer::E>(),
        "the types don't match: 2 is `B` at the reader and `C` at the writer; use one definition"
    );
    mod unions {
        use spindle_xcdr::*;
        #[derive(DdsType)]
        #[dds(union, appendable, discriminator = i32)]
        pub(super) enum Old {
            #[dds(case = 1)]
            _A(i32),
        }
        #[derive(DdsType)]
        #[dds(union, appendable, discriminator = i32)]
        pub(super) enum New {
            #[dds(case = 1)]
            _A(i32),
            #[dds(case = 2)]
            _B(u8),
        }
    }
    assert_eq!(reason::<unions::New, unions::Old>(), "assignable");
    assert_eq!(
        reason::<unions::Old, unions::New>(),
        "the types don't match: label 2 selects a member at the writer only; add it to the other union"
    );
}

#[test]
fn recursive_types_are_compared() {
    sides! {
        #[dds(appendable)] pub(super) struct T { a: i32, children: Vec<T> }
        #[dds(appendable)] pub(super) struct T { a: i32, children: Vec<T>, b: u8 }
    }
    assert_eq!(reason::<reader::T, writer::T>(), "assignable");
}
