// Written by spindle-idl from masks.idl. Do not edit.

#[allow(clippy::all, dead_code, missing_docs, non_camel_case_types, non_snake_case, non_upper_case_globals, unreachable_pub)]
pub mod corpus {
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ::spindle_xcdr::DdsType)]
    #[dds(name = "corpus::Flags", bitmask, bit_bound = 12, flags(ready = 0, r#type = 4, active = 5))]
    pub struct Flags(pub u16);

    impl ::core::default::Default for Flags {
        fn default() -> Self {
            ::spindle_xcdr::Cdr::missing()
        }
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ::spindle_xcdr::DdsType)]
    #[dds(name = "corpus::Order")]
    pub enum Order {
        #[dds(name = "FIRST")]
        First = 0,
        #[dds(name = "SECOND")]
        Second = 1,
    }

    impl ::core::default::Default for Order {
        fn default() -> Self {
            ::spindle_xcdr::Cdr::missing()
        }
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ::spindle_xcdr::DdsType)]
    #[dds(name = "corpus::WideMask", bitmask, bit_bound = 32, flags(low = 0, high = 31))]
    pub struct WideMask(pub u32);

    impl ::core::default::Default for WideMask {
        fn default() -> Self {
            ::spindle_xcdr::Cdr::missing()
        }
    }

    #[derive(Clone, Debug, PartialEq, ::spindle_xcdr::DdsType)]
    #[dds(name = "corpus::Masks", final)]
    pub struct Masks {
        pub flags: Flags,
        #[dds(default = 7)]
        pub seven: i16,
        #[dds(default = String::from("a \"text\""))]
        pub text: String,
        #[dds(default = true)]
        pub yes: bool,
        #[dds(default = ::spindle_xcdr::Char8(b'x'))]
        pub letter: ::spindle_xcdr::Char8,
        #[dds(default = -2.5)]
        pub number: f64,
        pub order: Order,
        pub wide: WideMask,
    }

    impl ::core::default::Default for Masks {
        fn default() -> Self {
            ::spindle_xcdr::Cdr::missing()
        }
    }
}
