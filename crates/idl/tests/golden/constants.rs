// Written by spindle-idl from constants.idl. Do not edit.

#[allow(clippy::all, dead_code, missing_docs, non_camel_case_types, non_snake_case, non_upper_case_globals, unreachable_pub)]
pub const TOP: i32 = 5;

#[allow(clippy::all, dead_code, missing_docs, non_camel_case_types, non_snake_case, non_upper_case_globals, unreachable_pub)]
pub mod corpus {
    pub const NUMBER: i32 = 20;

    pub const MASK: u32 = 15;

    pub const SMALL: u8 = 254;

    pub const RATIO: f64 = 375.0;

    pub const PART: f32 = 0.1;

    pub const YES: bool = true;

    pub const LETTER: ::spindle_xcdr::Char8 = ::spindle_xcdr::Char8(b'A');

    pub const QUOTE: ::spindle_xcdr::Char8 = ::spindle_xcdr::Char8(b'\'');

    pub const TEXT: &str = "two parts\tA";

    pub const BIG: i64 = 9223372036854775807;

    pub const BIGGER: u64 = 18446744073709551615;

    pub const OCTAL: i32 = 15;

    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ::spindle_xcdr::DdsType)]
    #[dds(name = "corpus::Kind")]
    pub enum Kind {
        #[dds(name = "ONE")]
        One = 0,
        #[dds(name = "TWO")]
        Two = 1,
    }

    impl ::core::default::Default for Kind {
        fn default() -> Self {
            ::spindle_xcdr::Cdr::missing()
        }
    }

    pub const CHOSEN: Kind = Kind::Two;

    #[derive(Clone, Debug, PartialEq, ::spindle_xcdr::DdsType)]
    #[dds(name = "corpus::Sized", final)]
    pub struct Sized {
        pub data: [i32; 22],
        #[dds(bound = 5)]
        pub name: String,
    }

    impl ::core::default::Default for Sized {
        fn default() -> Self {
            ::spindle_xcdr::Cdr::missing()
        }
    }
}
